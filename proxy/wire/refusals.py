"""Recognises an upstream's error "the request is too long" by the rows of rules/refusals.toml, in any wording.

The shapes of errors are shared by the APIs: many servers answer all of them with the same error JSON. It contains no
wording of its own, and does not decide what follows from a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from proxy.model.lenient_json import UNREADABLE, Json
from proxy.model.outcome import Quote, Refusal
from proxy.wire.wordings import Row, Rules, compile_rules

__all__ = ["Rules", "compile_rules", "folded", "recognise", "recognise_event", "words_of"]

LOOK = 65_536  # bytes of a body that are read: errors are short, and what is longer quotes somebody
TEXT = 4_000  # characters that patterns search, so that no body can block the event loop
VALUE = 2_000  # characters of one value: a long one must leave room for the others in TEXT
DEPTH = 12  # levels of nesting that are read
VICINITY = 80  # characters before and after a passage in which the next word is searched
TRIES = 8  # matches of a pattern that are tried for figures

# Keys under which servers echo what the client sent: what a user wrote there is no refusal.
ECHOES = frozenset({"input", "input_value", "messages", "prompt", "request", "body"})
ECHO = re.compile(r"""["'](?:input|messages|prompt|request|body)\\*["']\s*:(?! array too long)|\binput_value=""")
ESCAPE = re.compile(r"\\+u00([0-9a-fA-F]{2})|\\+([nrt])|\\+")
QUOTES = str.maketrans("", "", "\"'`´‘’“”")
GROUPED = re.compile(r"(?<=\d)[.,_](?=\d{3}(?!\d))")
WORD = re.compile(r"[^\W_]+")


def recognise(rules: Rules, status: int, body: bytes) -> Refusal | None:
    """The refusal that an HTTP response is, or None. `body` is without its content-encoding.

    A response with a status under 400 is read as `recognise_event` reads an event.
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
    vetoed = any(_applies(row, status, text) is not None for row in rules.vetoes)
    for row in rules.refusals:
        if (
            (row.first or not vetoed)
            and _means(rules, row, status)
            and (grounds := _applies(row, status, text)) is not None
        ):
            found = _figures((*row.patterns, *row.figures, *rules.figures), text)
            quotes = [_quote(text, *match.span()) for match in grounds if match[0]]
            return _refusal(row, found, (*quotes, *(_quote(text, *span, True) for span in found.values())), text)
    return None


def _means(rules: Rules, row: Row, status: int) -> bool:
    """Whether a row is about this status. A row without statuses is about all errors but those in `never`."""
    return bool(row.status) or (status >= 400 and status not in rules.never)


def _applies(row: Row, status: int, text: str) -> list[re.Match[str]] | None:
    """The matches of a row that applies; None if it does not apply."""
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
    """The figures in the text, by name, as places. The first pattern that finds a figure counts. No other figure may be
    at the place of the limit."""
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
    implied = limit is None and row.limit is not None
    total, excess = found.get("total"), found.get("excess")
    if total is not None and completion is not None and total >= completion:
        prompt = total - completion  # some name the parts of a prompt: messages, functions, tools
    if prompt is None and row.bounds == "input" and limit is not None and excess is not None:
        prompt = limit + excess
    return Refusal(
        row.name,
        limit=row.limit if implied else limit,
        bounds=row.bounds,
        prompt=prompt,
        completion=completion,
        total=total,
        excess=excess,
        at_least=row.at_least,
        implied=implied,
        quotes=quotes,
    )


def _quote(text: str, start: int, end: int, figure: bool = False) -> Quote:
    """A passage with the words next to it."""
    before, after = words_of(text[max(0, start - VICINITY) : start]), words_of(text[end : end + VICINITY])
    return Quote(words_of(text[start:end]), before[-1] if before else "", after[0] if after else "", figure)


def words_of(text: str) -> tuple[str, ...]:
    """The words and numbers of a folded text."""
    return tuple(WORD.findall(GROUPED.sub("", text)))


def _readable(body: bytes) -> str:
    """The text of an error body that patterns search: of JSON one line per value (`key: value`), else one line."""
    parsed = _parsed(body)
    return _joined(parsed) if parsed is not None else _plain(body[: 2 * TEXT].decode(errors="replace"))[:TEXT]


def _parsed(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
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
    """Every text and number with its key, in the body's order, without empty ones and without echoes."""
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
    """The folded text up to the first echo."""
    echo = ECHO.search(text)
    return folded(text[: echo.start()] if echo else text)


def folded(text: str) -> str:
    """Lower case, one space between words, without quotes and escapes."""
    text = ESCAPE.sub(_unescaped, text)
    return " ".join(text.translate(QUOTES).replace("&gt;", ">").lower().split())


def _unescaped(escape: re.Match[str]) -> str:
    """The replacement of an escape of JSON inside a JSON string: > for u003e, a space for n, nothing for a quote."""
    if escape[1]:
        return chr(int(escape[1], 16))
    return " " if escape[2] else ""


def _is_error(event: Mapping[str, Json]) -> bool:
    """Errors are under "error" or marked by object or type; some providers send only a message."""
    if event.get("error") or event.get("object") == "error" or event.get("type") in ("error", "response.failed"):
        return True
    return isinstance(event.get("message"), str) or bool(event.get("base_resp"))


def _status_within(event: Mapping[str, Json]) -> int:
    """The HTTP status that an error contains, else 400."""
    error = event.get("error")
    for holder in (error if isinstance(error, dict) else {}, event):
        for key in ("status_code", "status", "code"):
            named = str(holder.get(key))
            if re.fullmatch(r"[45]\d\d", named):
                return int(named)
    return 400
