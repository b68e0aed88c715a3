"""Messages: what the messages of one block add to a prompt by a family's recipe; it must not see the rest of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.model.conversation import Message
from proxy.model.lenient_json import Json, compacted, mapping, read, read_text, string
from proxy.tokens.content_parts import cost_of_part, text_of_part
from proxy.tokens.images import Images
from proxy.tokens.recipes import Recipe

RESULTS = frozenset({"tool", "function"})
LISTED = 8  # around the list of the results of calls made in parallel

Fields = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Counting:
    """What messages are counted with. `spoken` is for an assistant message of text, `unit` how many tokens of the
    encoding one token of an image is worth, `second` tokens for a second of sound."""

    count: Callable[[str], int]
    recipe: Recipe
    images: Images
    spoken: int = 0
    unit: float = 1.0
    second: int = 10


def costs(messages: Sequence[Message], how: Counting) -> tuple[int, ...]:
    """What each message of one block adds, in tokens of the encoding; the sum is the block's own."""
    fields = [fields_of(message.raw) for message in messages]
    calls = _calls(fields[0])
    if len(calls) > 1 and how.recipe.wraps:
        return _in_parallel(fields, calls, how)
    names = {ident: name for ident, name, _ in calls}
    frame = how.recipe.result
    return tuple(
        _result(f, names, how, frame) if string(f.get("role")) in RESULTS else _message(f, how) for f in fields
    )


def certain(message: Message, how: Counting) -> bool:
    """Whether nothing stands in a message whose cost is only assumed."""
    return all(
        cost_of_part(part, how.images, how.second).certain
        for part in _parts(fields_of(message.raw).get("content"))
        if text_of_part(part) is None
    )


def fields_of(raw: bytes) -> Fields:
    """A message's fields. What is no JSON object is read as its text: counting never fails."""
    found = read(raw)
    return found if isinstance(found, dict) else {"content": str(found)}


def text_of_raw(raw: bytes) -> str:
    """The text of a message's content."""
    return _text(fields_of(raw).get("content"))


def _message(fields: Fields, how: Counting) -> int:
    calls, recipe = _calls(fields), how.recipe
    text, role = _text(fields.get("content")), fields.get("role")
    total = _media(fields.get("content"), how)
    if text or not calls:
        total += recipe.message + how.count(text) + (how.spoken if role == "assistant" else 0)
    if calls:
        total += recipe.turn + sum(recipe.message + how.count(name) + how.count(compacted(a)) for _, name, a in calls)
    named = 0 if calls else recipe.named
    return total + _name(fields, named, how) + how.count(string(fields.get("refusal")))


def _name(fields: Fields, named: int, how: Counting) -> int:
    """A name costs itself and a separator; where it is the role's, only the separator."""
    name = string(fields.get("name"))
    if not name:
        return 0
    return named + (how.count(name) if name != fields.get("role") else 0)


def _result(fields: Fields, names: Mapping[str, str], how: Counting, frame: int) -> int:
    called = names.get(string(fields.get("tool_call_id"))) or string(fields.get("name")) or "x"
    content = fields.get("content")
    return frame + how.count(f"functions.{called}") + how.count(_text(content)) + _media(content, how)


def _in_parallel(fields: Sequence[Fields], calls: Sequence[tuple[str, str, str]], how: Counting) -> tuple[int, ...]:
    """Calls made at once stand in one JSON object, their results in one list; each result gets its share of it."""
    uses = [{"recipient_name": f"functions.{name}", "parameters": read_text(a)} for _, name, a in calls]
    wrapped = json.dumps({"tool_uses": uses}, separators=(",", ":"), ensure_ascii=False)
    text = _text(fields[0].get("content"))
    first = how.recipe.wrapped + how.count(wrapped) + (how.recipe.message + how.count(text) + how.spoken if text else 0)
    first += _name(fields[0], 0, how)
    if not how.recipe.lists:
        names = {ident: name for ident, name, _ in calls}
        return (first, *(_result(f, names, how, how.recipe.listed) for f in fields[1:]))
    texts = [_dumped(read_text(_text(f.get("content"))), how.recipe.escapes) for f in fields[1:]]
    listed = LISTED + how.count("[" + ", ".join(texts) + "]") if texts else 0
    media = (_media(f.get("content"), how) for f in fields[1:])
    return (first, *(share + more for share, more in zip(_shares(listed, texts), media, strict=True)))


def _shares(total: int, texts: Sequence[str]) -> Iterable[int]:
    """A total shared out by the texts' lengths, to the token."""
    whole = sum(map(len, texts))
    seen = given = 0
    for text in texts:
        seen += len(text)
        upto = total * seen // whole
        yield upto - given
        given = upto


def _calls(fields: Fields) -> list[tuple[str, str, str]]:
    """Id, function name and arguments of each call that a message makes; the arguments as text."""
    calls = fields.get("tool_calls")
    found = [_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    old = fields.get("function_call")
    return [_call({"function": old})] if isinstance(old, dict) and not found else found


def _call(call: Fields) -> tuple[str, str, str]:
    found = mapping(call.get("function") or call.get("custom"))
    given = found.get("arguments", found.get("input"))
    text = given if isinstance(given, str) else "" if given is None else json.dumps(given)
    return string(call.get("id")), string(found.get("name")), text


def _dumped(value: Json, escaped: bool) -> str:
    return json.dumps(value, ensure_ascii=escaped)


def _parts(content: Json) -> list[Json]:
    return content if isinstance(content, list) else []


def _text(content: Json) -> str:
    return content if isinstance(content, str) else "".join(text_of_part(part) or "" for part in _parts(content))


def _media(content: Json, how: Counting) -> int:
    others = [part for part in _parts(content) if text_of_part(part) is None]
    return round(how.unit * sum(cost_of_part(part, how.images, how.second).tokens for part in others))
