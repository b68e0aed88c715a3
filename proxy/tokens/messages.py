"""Counts the messages of one block by a model family's recipe. It never sees the rest of the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.model.conversation import Message
from proxy.model.lenient_json import Json, compacted, mapping, read, read_text, string
from proxy.tokens.content_parts import Cost, cost_of_part, text_of_part, unshown
from proxy.tokens.images import Images
from proxy.tokens.recipes import Recipe

RESULTS = frozenset({"tool", "function"})
RESULT_LIST_OVERHEAD = 8  # tokens around the list of the results of parallel calls

Fields = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class CountingRules:
    """How messages are counted. `count`: tokens of a text. `assistant_text`: tokens per assistant message with text.
    `unit`: tokens of the encoding per token of the model, for images. `second`: tokens of one second of audio.
    `model`: its name, where models of one recipe differ."""

    count: Callable[[str], int]
    recipe: Recipe
    images: Images
    assistant_text: int = 0
    unit: float = 1.0
    second: int = 10
    model: str = ""


def costs(messages: Sequence[Message], rules: CountingRules) -> tuple[int, ...]:
    """Tokens of the encoding that each message of one block adds to the prompt. The sum is exact."""
    fields = [fields_of(message.raw) for message in messages]
    calls = _calls(fields[0])
    if len(calls) > 1 and rules.recipe.wraps_parallel:
        return _in_parallel(fields, calls, rules)
    names = {ident: name for ident, name, _ in calls}
    frame = rules.recipe.result
    return tuple(
        _result(f, names, rules, frame)
        if string(f.get("role")) in RESULTS
        else _message(f, calls if f is fields[0] else _calls(f), rules)
        for f in fields
    )


def certain(message: Message, rules: CountingRules) -> bool:
    """Whether the cost of every part of a message is known, not assumed."""
    return all(
        cost_of_part(part, rules.images, rules.second).certain
        for part in _parts(fields_of(message.raw).get("content"))
        if text_of_part(part) is None
    )


def assumed(message: Message, rules: CountingRules) -> tuple[Cost, ...]:
    """The costs of a message's parts that its body does not show."""
    return unshown(
        cost_of_part(part, rules.images, rules.second)
        for part in _parts(fields_of(message.raw).get("content"))
        if text_of_part(part) is None
    )


def fields_of(raw: bytes) -> Fields:
    """A message's fields. Never raises; anything but a JSON object becomes the content."""
    found = read(raw)
    return found if isinstance(found, dict) else {"content": str(found)}


def text_of_raw(raw: bytes) -> str:
    """The text of the content of a message's JSON. Never raises."""
    return _text(fields_of(raw).get("content"))


def _message(fields: Fields, calls: Sequence[tuple[str, str, str]], rules: CountingRules) -> int:
    recipe = rules.recipe
    text, role = _text(fields.get("content")), fields.get("role")
    total = _media(fields.get("content"), rules)
    if text or not calls:
        total += recipe.message + rules.count(text) + (rules.assistant_text if role == "assistant" else 0)
    if calls:
        total += recipe.call_turn + sum(
            recipe.message + rules.count(name) + rules.count(compacted(a)) for _, name, a in calls
        )
    named = 0 if calls else recipe.name_overhead
    refusal = string(fields.get("refusal"))
    return total + _name(fields, named, rules) + (rules.count(refusal) if refusal else 0)


def _name(fields: Fields, named: int, rules: CountingRules) -> int:
    """A name costs itself and a separator; a name equal to the role costs only the separator."""
    name = string(fields.get("name"))
    if not name:
        return 0
    return named + (rules.count(name) if name != fields.get("role") else 0)


def _result(fields: Fields, names: Mapping[str, str], rules: CountingRules, frame: int) -> int:
    called = names.get(string(fields.get("tool_call_id"))) or string(fields.get("name")) or "x"
    content = fields.get("content")
    return frame + rules.count(f"functions.{called}") + rules.count(_text(content)) + _media(content, rules)


def _in_parallel(
    fields: Sequence[Fields], calls: Sequence[tuple[str, str, str]], rules: CountingRules
) -> tuple[int, ...]:
    """Parallel calls are one JSON object, their results one list; each result gets its share of the list."""
    uses = [{"recipient_name": f"functions.{name}", "parameters": read_text(a)} for _, name, a in calls]
    wrapped = json.dumps({"tool_uses": uses}, separators=(",", ":"), ensure_ascii=False)
    text = _text(fields[0].get("content"))
    first = (
        rules.recipe.parallel_overhead
        + rules.count(wrapped)
        + (rules.recipe.message + rules.count(text) + rules.assistant_text if text else 0)
    )
    first += _name(fields[0], 0, rules)
    if not rules.recipe.lists_results:
        names = {ident: name for ident, name, _ in calls}
        return (first, *(_result(f, names, rules, rules.recipe.unlisted_result) for f in fields[1:]))
    texts = [_dumped(read_text(_text(f.get("content"))), rules.recipe.ascii_results) for f in fields[1:]]
    listed = RESULT_LIST_OVERHEAD + rules.count("[" + ", ".join(texts) + "]") if texts else 0
    media = (_media(f.get("content"), rules) for f in fields[1:])
    return (first, *(share + more for share, more in zip(_shares(listed, texts), media, strict=True)))


def _shares(total: int, texts: Sequence[str]) -> Iterable[int]:
    """Splits a total in proportion to the lengths of the texts; the shares add up exactly."""
    whole = sum(map(len, texts))
    length = shared = 0
    for text in texts:
        length += len(text)
        upto = total * length // whole
        yield upto - shared
        shared = upto


def _calls(fields: Fields) -> list[tuple[str, str, str]]:
    """Id, function name and arguments (as text) of each call of a message."""
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


def _media(content: Json, rules: CountingRules) -> int:
    others = [part for part in _parts(content) if text_of_part(part) is None]
    if not others:
        return 0
    return round(rules.unit * sum(cost_of_part(part, rules.images, rules.second).tokens for part in others))
