"""Variants of a model's name: without its path, vendor or version, and the parts that may name another model.

Names are compared in lower case. The module has no list of models.
"""

from __future__ import annotations

import re

from proxy.model.names import LONGEST_NAME

MAX_LENGTH = LONGEST_NAME
MAX_SEGMENTS = 16  # the number of parts grows with its square
MIN_PART_LENGTH = 4  # characters: `o1` inside another name identifies nothing

# A version at the end: gpt-4o-2024-08-06, claude-3-opus@20240229, gpt-4-0613, gemini-2.0-flash-001, llama3:latest,
# claude-3-opus-20240229-v1:0. Not -preview or -mini (other models), nor -v3 (deepseek-v3 is a model).
VERSION = re.compile(r"([-@:](\d{4}-\d\d-\d\d|\d{8}|\d{6}|\d{3,4}|latest|default)|-v\d+:\d+)\Z", re.ASCII)
VERSION_ENDS = (*"0123456789", "latest", "default")
# A vendor or region before the name, as Bedrock and OCI write it: us.anthropic.claude-3-opus. A digit after the dot
# is a version: gpt-4.1, qwen2.5.
VENDOR = re.compile(r"([a-z][a-z0-9-]*\.)+(?=[a-z])", re.ASCII)
DELIMITER = re.compile(r"([/:_@-])")
# How a host serves a model, at the end of OpenRouter's names. `:extended` and `:thinking` are models of their own.
SERVED = re.compile(r":(free|online|nitro|floor|exacto)\Z")
TUNED = re.compile(r"ft:([^:]+)")  # a fine-tuned model of OpenAI's: ft:gpt-4o-mini-2024-07-18:org::id
STEM_END = re.compile(r"[/:_@.-]")
# Words that many vendors use: a part made of these alone (chat-latest, model_router) identifies no model.
GENERIC = frozenset(
    "ai api auto base beta chat chatbot code coder completion default fast flash free instruct it large latest lite "
    "llm max medium mini model models nano nightly online plus preview pro router small text thinking turbo".split()
)


def without_vendor(name: str) -> str:
    """The name without its path and vendor: `azure/eu/gpt-4o` is `gpt-4o`."""
    last = name.rpartition("/")[2]
    vendor = VENDOR.match(last) if "." in last else None
    return last[vendor.end() :] if vendor else last


def without_version(name: str) -> str:
    """The name without its date or version: `gpt-4o-2024-08-06` is `gpt-4o`."""
    while name.endswith(VERSION_ENDS) and (match := VERSION.search(name)) and match.start():
        name = name[: match.start()]
    return name


def variants(name: str) -> tuple[str, ...]:
    """The names to look a model up by, most specific first: the name, the name with fewer and fewer leading path
    segments, without its vendor, then each of these without its version. Empty for a name that is too long."""
    if len(name) > MAX_LENGTH:
        return ()
    name = name.strip().lower()
    segments = name.split("/")
    found = ["/".join(segments[start:]) for start in range(len(segments))]
    found.append(without_vendor(name))
    return tuple(dict.fromkeys(variant for variant in (*found, *map(without_version, found)) if variant))


def served(name: str) -> tuple[str, ...]:
    """The variants of a name, then those of the same model as another host or its maker names it: `gpt-4o:free` and
    `ft:gpt-4o:org::id` have the window of `gpt-4o`, though not its price."""
    found = variants(name)
    bare = SERVED.sub("", name.strip().lower())
    tuned = TUNED.match(bare.rpartition("/")[2])
    return tuple(dict.fromkeys((*found, *variants(tuned[1] if tuned else bare)))) if found else ()


def stems(name: str) -> tuple[str, ...]:
    """The beginnings of a name that end where a word or a version does, longest first, as far as they are distinctive:
    `gemini-3.7-pro`, `gemini-3.7`, `gemini-3`, `gemini`."""
    bare = without_version(without_vendor(name.strip().lower()))
    ends = (len(bare), *(match.start() for match in reversed(list(STEM_END.finditer(bare)))))
    return tuple(bare[:end] for end in ends if _begins_a_family(bare[:end]))


def _begins_a_family(stem: str) -> bool:
    words = STEM_END.split(stem)
    return len(stem) >= MIN_PART_LENGTH and not all(word in GENERIC or word.isdigit() for word in words)


def parts(name: str) -> tuple[str, ...]:
    """The parts of a name between `/ - : _ @`, longest first, that are distinctive enough to name a model."""
    path = "/".join(map(without_vendor, name.strip().lower().split("/")))
    cut = DELIMITER.split(path)[-2 * MAX_SEGMENTS + 1 :]
    spans = ((start, end) for start in range(0, len(cut), 2) for end in range(start, len(cut), 2))
    found = {"".join(cut[start : end + 1]) for start, end in spans}
    return tuple(sorted(filter(is_distinctive, found), key=lambda part: (-len(part), part)))


def is_distinctive(part: str) -> bool:
    """Whether a part alone identifies one model: `gpt-4` and `llama3` do; `70b`, `chat-latest`, `mistral` do not."""
    words = DELIMITER.split(part)[::2]
    if len(part) < MIN_PART_LENGTH or all(word in GENERIC or word.isdigit() for word in words):
        return False
    return len(words) > 1 or (part[0].isalpha() and any(c.isdigit() for c in part))
