"""The meter: counts one request for one model and remembers what it counted; it must not know where to or why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from xxhash import xxh3_128_digest

from proxy.model import oversized_json
from proxy.model.conversation import Kind, Message, MessageFormat, Prompt
from proxy.model.limits import Correction, LearnedLimits, Margin, Quality
from proxy.model.outcome import Usage
from proxy.model.ports import Memory, Meter
from proxy.model.structs import replace
from proxy.tokens.counting_key import Terms, terms_for
from proxy.tokens.encodings import encoding
from proxy.tokens.families import ASSUMED, BUILT_IN, SURE, Families, Family
from proxy.tokens.messages import certain, costs, text_of_raw
from proxy.tokens.request_overhead import KEYS, PARTS, fixed_as_text, fixed_costs, has_schema, is_certain

RawMessage = tuple[str, bytes]  # role and JSON object
NOTHING = LearnedLimits()
INSTRUCTIONS = ("system", "developer")
CERTAIN, FIXED = 1, 2  # what else is remembered, laid over the seed
NO_OTHER = 0.03  # a learned ratio nearer to 1 is noise where counts are exact; a larger one says: another model
RATIOS = (0.25, 8.0)  # no tokenizer that we know is further from the encodings; what is, was a fault
SAMPLES = 128  # pieces of a text out of all proportion that are counted: 4 MB, up to 2 s
ENOUGH = 1000  # tokens: a shorter prompt tells little of a ratio, because its frame weighs as much as its text
# Of its family's row: what usage says beyond that is no count of what was sent. Some gateways leave out what they had
# cached, some servers cut silently, and a search that a host ran may be many times the prompt.
PLAUSIBLE = (0.7, 3.0)
ONLINE = ":online"  # how models' names end for which OpenRouter puts what it found on the web before the prompt


def meter_for(
    prompt: Prompt,
    model: str,
    memory: Memory,
    learned: LearnedLimits = NOTHING,
    tokenizer: str | None = None,
    families: Families = BUILT_IN,
) -> Meter:
    """The meter of a request for a model of these families: the request's own, or one that it might be switched to.

    With a `tokenizer`, the path of the user's own for this model, a correction is not heeded: it speaks of another
    encoding.
    """
    system = next((m for m in prompt.messages if m.role in INSTRUCTIONS), None)
    schema = (1 if system is None else 2) if has_schema(prompt.head) else 0
    terms = terms_for(model, schema, prompt.opaque, tokenizer, families)
    believed = None if terms.family.own else _believed(learned.correction, terms.family)
    factor = learned.scale * (believed.ratio if believed is not None else terms.family.factor)
    return RequestMeter(prompt, terms, memory, system, factor, learned.scale, believed)


def prompt_tokens(model: str, fields: Mapping[str, bytes], blocks: Sequence[Sequence[RawMessage]]) -> int:
    """Prompt tokens of a chat request, counted without a cache and without corrections.

    `fields` are the body's other top-level fields as raw JSON. A block is a message with calls and its results, or any
    other message. Never raises.
    """
    only_counted = cast(MessageFormat, None)
    groups = [[Message(raw, role, Kind.OTHER, only_counted) for role, raw in block] for block in blocks]
    prompt = Prompt(model, tuple(message for group in groups for message in group), fields)
    meter = meter_for(prompt, model, _NoMemory())
    return sum(meter.fixed.values()) + sum(sum(meter.costs(group)) for group in groups)


class _NoMemory:
    """Satisfies `Memory` and keeps nothing."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        return None

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        pass


def unit_of(meter: Meter) -> float | None:
    """How many of the model's tokens the meter takes one of its encoding for, refusals' lessons apart; None where
    usage teaches nothing: some part's cost is only assumed, a host adds what it found, or the tokenizer is the
    user's own."""
    if not isinstance(meter, RequestMeter) or not meter.certain:
        return None
    family = meter.terms.family
    if family.own or family.recipe.searches:
        return None
    return meter.factor / meter.scale


def learned_ratio(model: str, family: Family, unit: float | None, counted: int, usage: Usage) -> float | None:
    """The ratio that usage teaches of a model where so many tokens were counted with that unit. None where it tells
    nothing: a short prompt, one with parts whose cost is assumed, a figure that cannot be true."""
    if unit is None or counted < ENOUGH or usage.cached > usage.prompt or model.endswith(ONLINE):
        return None
    found, row = usage.prompt / counted * unit, family.factor
    return found if PLAUSIBLE[0] * row <= found <= PLAUSIBLE[1] * row else None


def is_noise(family: Family, ratio: float) -> bool:
    """Whether a ratio says no more of models that are counted exactly than that they are."""
    return abs(ratio - 1) < NO_OTHER and family.ratio is None


def _believed(correction: Correction | None, family: Family) -> Correction | None:
    if correction is None or not RATIOS[0] <= correction.ratio <= RATIOS[1]:
        return None
    return None if is_noise(family, correction.ratio) else correction


@dataclass(frozen=True, eq=False)
class RequestMeter:
    """Satisfies `Meter`. What it remembers are tokens of the family's encoding; `factor` makes them the model's."""

    prompt: Prompt
    terms: Terms
    memory: Memory
    system: Message | None
    factor: float
    scale: float
    correction: Correction | None

    @cached_property
    def quality(self) -> Quality:
        """Exact where encoding and recipe are the model's own; calibrated where the encoding is, or where usage or a
        refusal corrected it."""
        if self.terms.family.ratio is None and self.factor == 1.0:
            return Quality.EXACT if self.certain else Quality.ESTIMATED
        known = self.terms.family.own or self.correction is not None or self.scale != 1.0
        return Quality.CALIBRATED if known else Quality.ESTIMATED

    @cached_property
    def margin(self) -> Margin:
        """The gap that counts of this quality need."""
        family = self.terms.family
        if family.ratio is None:
            margin = SURE if self.quality is Quality.EXACT else ASSUMED
        else:
            margin = family.margin if self.quality is Quality.ESTIMATED else family.calibrated
        share = self.correction.share if self.correction is not None else None
        return margin if share is None else Margin(margin.base, share)

    @cached_property
    def certain(self) -> bool:
        """Whether no part of the prompt has a cost that is only assumed."""
        if not self._head[-1]:
            return False
        return not self.prompt.opaque or all(self._certain(message) for message in self.prompt.messages)

    def _certain(self, message: Message) -> bool:
        if b"[" not in message.raw:
            return True  # no parts
        key = xxh3_128_digest(message.raw, self.terms.seed ^ CERTAIN)
        found = self.memory.get(key)
        if found is None:
            found = (int(certain(replace(message, raw=_abridged(message.raw)), self.terms.how)),)
            self.memory.put(key, found)
        return found != (0,)

    @cached_property
    def fixed(self) -> Mapping[str, int]:
        """What the prompt costs besides its messages, by what takes it."""
        tokens = zip(PARTS, self._scaled(self._head[:-1]), strict=True)
        return {part: count for part, count in tokens if count or part == PARTS[0]}

    @cached_property
    def _head(self) -> tuple[int, ...]:
        """The costs of the head, and 1 where they are certain."""
        key = xxh3_128_digest(self._head_raw, self.terms.seed ^ FIXED)
        found = self.memory.get(key)
        if found is None or len(found) != len(PARTS) + 1:
            found = self._counted_head()
            self.memory.put(key, found)
        return found

    @property
    def _head_raw(self) -> bytes:
        head = [self.prompt.head.get(key, b"") for key in KEYS]
        return b"\0".join((*head, b"" if self.system is None else self.system.raw))

    def _counted_head(self) -> tuple[int, ...]:
        how, text = self.terms.how, None if self.system is None else text_of_raw(_abridged(self.system.raw))
        if sum(len(self.prompt.head.get(key, b"")) for key in KEYS) > oversized_json.OUTSIZE:
            whole = [self.prompt.head.get(key, b"") for key in ("tools", "functions", "response_format")]
            tools, functions, schema = (self._in_pieces(raw, [(0, len(raw))]) for raw in whole)
            return how.recipe.base, how.recipe.tools + tools + functions, 0, schema, 0
        try:
            return (*fixed_costs(self.prompt.head, text, how), int(is_certain(self.prompt.head, how)))
        except RecursionError:
            return (*fixed_as_text(self.prompt.head, how), 0)

    def text(self, text: str) -> int:
        """Tokens of a bare text."""
        return round(self.factor * self.terms.how.count(text))

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        """The longest head (or tail) of a text that costs at most so many tokens."""
        return encoding(self.terms.family.encoding).cut(text, int(tokens / self.factor), tail)

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """What each message of one block adds to the prompt."""
        key = xxh3_128_digest(_joined(messages), self.terms.seed)
        found = self.memory.get(key)
        if found is None or len(found) != len(messages):
            found = self._counted(messages)
            self.memory.put(key, found)
        return found if self.factor == 1.0 else self._scaled(found)

    def _counted(self, messages: Sequence[Message]) -> tuple[int, ...]:
        if any(len(message.raw) > oversized_json.OUTSIZE for message in messages):
            return self._counted_in_pieces(messages)
        try:
            return costs(messages, self.terms.how)
        except RecursionError:  # JSON nested too deep to be written again: as text, which costs no less
            return tuple(self.terms.how.count(m.raw.decode("utf-8", "replace")) for m in messages)

    def _counted_in_pieces(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The same where one is out of all proportion: without the middles of its long strings, and those apart."""
        gone = [oversized_json.cuts(m.raw, oversized_json.OUTSIZE, images=True) for m in messages]
        small = [
            replace(m, raw=oversized_json.without(m.raw, g)) if g else m for m, g in zip(messages, gone, strict=True)
        ]
        try:
            found = costs(small, self.terms.how)
        except RecursionError:
            found = tuple(self._in_pieces(m.raw, [(0, len(m.raw))]) for m in small)
        return tuple(c + self._in_pieces(m.raw, g) for c, m, g in zip(found, messages, gone, strict=True))

    def _in_pieces(self, raw: bytes, gone: Sequence[tuple[int, int]]) -> int:
        texts = (cut for cut in gone if not oversized_json.is_image(raw, cut))
        return sum(_sampled(raw, cut, self.terms.how.count) for cut in texts)

    def _scaled(self, found: Sequence[int]) -> tuple[int, ...]:
        factor = self.factor
        return tuple([int(count * factor + 0.5) for count in found])

    def scaled(self, ratio: float) -> Meter:
        """A meter whose counts are this one's times a ratio that an upstream taught us."""
        return replace(self, factor=self.factor * ratio, scale=self.scale * ratio)

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        """None where this block's cost is remembered; else its key, and the bytes that it depends on. Without
        messages the same for what the head costs."""
        raw, mark, size = _joined(messages), b"\0", len(messages)
        seed = self.terms.seed
        if not messages:
            raw, mark, size, seed = self._head_raw, b"|head\0", len(PARTS) + 1, seed ^ FIXED
        key = xxh3_128_digest(raw, seed)
        found = self.memory.get(key)
        known = (found is not None and len(found) == size) or len(
            raw
        ) > oversized_json.OUTSIZE  # that is a copy too many
        return None if known else (key, self.terms.id + mark + raw)


def _abridged(raw: bytes) -> bytes:
    """A message as it is, or where it is out of all proportion without the middles of its long strings."""
    if len(raw) <= oversized_json.OUTSIZE:
        return raw
    return oversized_json.without(raw, oversized_json.cuts(raw, oversized_json.OUTSIZE, images=True))


def _sampled(raw: bytes, cut: tuple[int, int], count: Callable[[str], int]) -> int:
    """Tokens of a part of a message, a piece at a time; of a very long one as many pieces as tell its tokens to a
    hundredth or so: it is longer than windows are."""
    pieces = max(1, (cut[1] - cut[0]) // oversized_json.PIECE)
    step = -(-pieces // SAMPLES)
    if step == 1:
        return sum(map(count, oversized_json.pieces(raw, cut)))
    spans = [
        (cut[0] + oversized_json.PIECE * place, cut[0] + oversized_json.PIECE * (place + 1))
        for place in range(0, pieces, step)
    ]
    told = sum(count(piece) for span in spans for piece in oversized_json.pieces(raw, span))
    return told * (cut[1] - cut[0]) // (len(spans) * oversized_json.PIECE)


def _joined(messages: Sequence[Message]) -> bytes:
    """The bytes of a block. JSON holds no NUL, so what parts its messages cannot be mistaken."""
    return messages[0].raw if len(messages) == 1 else b"\0".join([message.raw for message in messages])
