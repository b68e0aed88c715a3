"""A model's many names: the forms that one name may be known by, and the parts of it that may be another's name.

Names are compared in lower case. It knows no model.
"""

from __future__ import annotations

import re

from proxy.model.names import LONGEST_NAME

LONGEST = LONGEST_NAME
MOST_SEGMENTS = 16  # parts grow with the square of it
SHORTEST_PART = 4  # characters: `o1` inside another name says nothing

# A version at the end: gpt-4o-2024-08-06, claude-3-opus@20240229, gpt-4-0613, gemini-2.0-flash-001, llama3:latest,
# claude-3-opus-20240229-v1:0. Not -preview or -mini (other models), nor -v3 (deepseek-v3 is a model).
VERSION = re.compile(r"([-@:](\d{4}-\d\d-\d\d|\d{8}|\d{6}|\d{3,4}|latest|default)|-v\d+:\d+)\Z", re.ASCII)
VERSION_ENDS = (*"0123456789", "latest", "default")
# A maker or region before the name, as Bedrock and OCI write it: us.anthropic.claude-3-opus. A digit after the dot
# is a version: gpt-4.1, qwen2.5.
MAKER = re.compile(r"([a-z][a-z0-9-]*\.)+(?=[a-z])", re.ASCII)
DELIMITER = re.compile(r"([/:_@-])")
# Words that many makers use: a part made of these alone (chat-latest, model_router) names no model.
GENERIC = frozenset(
    "ai api auto base beta chat chatbot code coder completion default fast flash free instruct it large latest lite "
    "llm max medium mini model models nano nightly online plus preview pro router small text thinking turbo".split()
)


def bare(name: str) -> str:
    """The name without its provider's path and its maker: `azure/eu/gpt-4o` is `gpt-4o`."""
    last = name.rpartition("/")[2]
    maker = MAKER.match(last) if "." in last else None
    return last[maker.end() :] if maker else last


def stem(name: str) -> str:
    """The name without its date or version: `gpt-4o-2024-08-06` is `gpt-4o`."""
    while name.endswith(VERSION_ENDS) and (match := VERSION.search(name)) and match.start():
        name = name[: match.start()]
    return name


def forms(name: str) -> tuple[str, ...]:
    """What a name may be known by, most exact first: itself, then without one leading folder after another and the
    maker, then each of these without its version. None for one that is too long to be a model's name."""
    if len(name) > LONGEST:
        return ()
    name = name.strip().lower()
    pieces = name.split("/")
    found = ["/".join(pieces[start:]) for start in range(len(pieces))]
    found.append(bare(name))
    return tuple(dict.fromkeys(form for form in (*found, *map(stem, found)) if form))


def parts(name: str) -> tuple[str, ...]:
    """The parts of a name between `/ - : _ @` or its ends, longest first, that tell enough to be a model's name."""
    folders = "/".join(map(bare, name.strip().lower().split("/")))
    cut = DELIMITER.split(folders)[-2 * MOST_SEGMENTS + 1 :]
    spans = ((start, end) for start in range(0, len(cut), 2) for end in range(start, len(cut), 2))
    found = {"".join(cut[start : end + 1]) for start, end in spans}
    return tuple(sorted(filter(telling, found), key=lambda part: (-len(part), part)))


def telling(part: str) -> bool:
    """Whether a part can name one model alone: `gpt-4` and `llama3` can; `70b`, `chat-latest` and `mistral` cannot."""
    words = DELIMITER.split(part)[::2]
    if len(part) < SHORTEST_PART or all(word in GENERIC or word.isdigit() for word in words):
        return False
    return len(words) > 1 or (part[0].isalpha() and any(c.isdigit() for c in part))
