"""Knows an upstream's "too long" when it sees one, in whatever words, by the rows of rules/refusals.toml.

It holds no wording of its own and never decides what follows from a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from proxy.model.lenient_json import Json
from proxy.model.outcome import Quote, Refusal
from proxy.wire.wordings import Row, Rules, compile_rules

__all__ = ["Rules", "compile_rules", "folded", "recognise", "recognise_event", "words_of"]

LOOK = 65_536  # bytes of a body that are looked at: errors are short, and what is longer quotes somebody
TEXT = 4_000  # characters that patterns run over, so that no body can hold up the event loop
VALUE = 2_000  # characters of one value: a long one must not push the others out of TEXT
DEPTH = 12  # levels of nesting that are walked
VICINITY = 80  # characters beside a passage in which the next word is looked for
TRIES = 8  # places of a text at which a pattern may find its figures

# Keys under which servers echo what the client sent: whatever a user wrote there, it is no refusal.
ECHOES = frozenset({"input", "input_value", "messages", "prompt", "request", "body"})
ECHO = re.compile(r"""["'](?:input|messages|prompt|request|body)\\*["']\s*:|\binput_value=""")
ESCAPE = re.compile(r"\\+u00([0-9a-fA-F]{2})|\\+([nrt])|\\+")
QUOTES = str.maketrans("", "", "\"'`´‘’“”")
GROUPED = re.compile(r"(?<=\d)[.,_](?=\d{3}(?!\d))")
WORD = re.compile(r"[^\W_]+")


def recognise(rules: Rules, status: int, body: bytes) -> Refusal | None:
    """The refusal that an HTTP answer is, or None. `body` has no content-encoding any more.

    An answer with a status under 400 is looked at as `recognise_event` looks at an event.
    """
    if status < 400:
        return recognise_event(rules, body)
    return _match(rules, status, _readable(body[:LOOK]))


def recognise_event(rules: Rules, data: bytes, finish: bool = False) -> Refusal | None:
    """The refusal that the data of one event inside a 200 stream is, or None.

    An error there has no status but the number in it, else 400. What is no error can still refuse by its finish
    reason (rows for status 200), if no content is in it. The caller makes sure that no content came before it.
    `finish`: the API says that it is such an event and no error.
    """
    event = _parsed(data[:LOOK])
    if not isinstance(event, dict):
        return _match(rules, 400, _readable(data[:LOOK]))
    return _match(rules, _status_within(event) if not finish and _is_error(event) else 200, _joined(event))


def _match(rules: Rules, status: int, text: str) -> Refusal | None:
    if any(_applies(row, status, text) is not None for row in rules.vetoes):
        return None
    for row in rules.refusals:
        if _means(rules, row, status) and (grounds := _applies(row, status, text)) is not None:
            found = _figures((*row.patterns, *row.figures, *rules.figures), text)
            quotes = [_quote(text, *match.span()) for match in grounds if match[0]]
            return _refusal(row, found, (*quotes, *(_quote(text, *span, True) for span in found.values())), text)
    return None


def _means(rules: Rules, row: Row, status: int) -> bool:
    """Whether a row may speak of this status: one that names none means errors, without those that never are."""
    return bool(row.status) or (status >= 400 and status not in rules.never)


def _applies(row: Row, status: int, text: str) -> list[re.Match[str]] | None:
    """What a row finds that applies; None where it does not apply."""
    if row.status and status not in row.status:
        return None
    found = []
    if row.code is not None:
        if (code := row.code.search(text)) is None:
            return None
        found.append(code)
    if row.patterns:
        if (match := next(filter(None, (p.search(text) for p in row.patterns)), None)) is None:
            return None
        found.append(match)
    return found


Span = tuple[int, int]


def _figures(patterns: Iterable[re.Pattern[str]], text: str) -> dict[str, Span]:
    """Where the text names what, by group; the first pattern that finds a figure wins it. The limit is no other
    figure."""
    found: dict[str, Span] = {}
    for pattern in patterns:
        if pattern.groupindex.keys() <= found.keys():
            continue
        for match in islice(pattern.finditer(text), TRIES):
            new = {name: match.span(name) for name in pattern.groupindex if name not in found and match[name]}
            both = {**found, **new}
            if all(span != both.get("limit") for name, span in both.items() if name != "limit"):
                found = both
                break
    return found


def _refusal(row: Row, spans: Mapping[str, Span], quotes: tuple[Quote, ...], text: str) -> Refusal:
    found = {name: int(re.sub(r"[.,_]", "", text[start:end])) for name, (start, end) in spans.items()}
    limit, prompt, completion = found.get("limit") or None, found.get("prompt") or None, found.get("completion")
    total, excess = found.get("total"), found.get("excess")
    if total is not None and completion is not None and total >= completion:
        prompt = total - completion  # some tell the parts of a prompt apart: messages, functions, tools
    if prompt is None and row.bounds == "input" and limit is not None and excess is not None:
        prompt = limit + excess
    return Refusal(row.name, limit, row.bounds, prompt, completion, total, excess, row.at_least, quotes)


def _quote(text: str, start: int, end: int, figure: bool = False) -> Quote:
    """A passage with the words next to it."""
    before, after = words_of(text[max(0, start - VICINITY) : start]), words_of(text[end : end + VICINITY])
    return Quote(words_of(text[start:end]), before[-1] if before else "", after[0] if after else "", figure)


def words_of(text: str) -> tuple[str, ...]:
    """The words and numbers of a folded text, without what stands between them."""
    return tuple(WORD.findall(GROUPED.sub("", text)))


def _readable(body: bytes) -> str:
    """The text of an error body as patterns see it: a line a value (`key: value`) in JSON, else one line."""
    parsed = _parsed(body)
    return _joined(parsed) if parsed is not None else _plain(body[: 2 * TEXT].decode(errors="replace"))[:TEXT]


def _parsed(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _joined(parsed: Json) -> str:
    lines: list[str] = []
    size = 0
    for key, value in _scalars(parsed, "", DEPTH):
        lines.append(f"{key}: {_plain(value[:VALUE])}" if key else _plain(value[:VALUE]))
        size += len(lines[-1])
        if size > TEXT:
            break
    return "\n".join(lines)


def _scalars(value: Json, key: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every text and number with its key, in the body's order, without what is empty and without echoes."""
    if isinstance(value, dict):
        for name, inner in value.items() if depth else ():
            if name not in ECHOES:
                yield from _scalars(inner, name.lower(), depth - 1)
    elif isinstance(value, list):
        for inner in value if depth else ():
            yield from _scalars(inner, key, depth - 1)
    elif value != "" and not isinstance(value, bool | None):
        yield key, str(value)


def _plain(text: str) -> str:
    """Folded, without all from the first echo on."""
    echo = ECHO.search(text)
    return folded(text[: echo.start()] if echo else text)


def folded(text: str) -> str:
    """Lower case, one space between words, without quotes and escapes."""
    text = ESCAPE.sub(_unescaped, text)
    return " ".join(text.translate(QUOTES).replace("&gt;", ">").lower().split())


def _unescaped(escape: re.Match[str]) -> str:
    """What is left of an escape in JSON within a JSON string: u003e is a >, n a space, a quote goes anyway."""
    if escape[1]:
        return chr(int(escape[1], 16))
    return " " if escape[2] else ""


def _is_error(event: Mapping[str, Json]) -> bool:
    """Errors are under "error" or marked by object or type; some providers send only a message."""
    if event.get("error") or event.get("object") == "error" or event.get("type") in ("error", "response.failed"):
        return True
    return isinstance(event.get("message"), str) or bool(event.get("base_resp"))


def _status_within(event: Mapping[str, Json]) -> int:
    """The HTTP status that an error names, else 400."""
    error = event.get("error")
    for holder in (error if isinstance(error, dict) else {}, event):
        for key in ("status_code", "status", "code"):
            named = str(holder.get(key))
            if re.fullmatch(r"[45]\d\d", named):
                return int(named)
    return 400
