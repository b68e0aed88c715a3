"""The meter: counts one request for one model, with a cache of counts. It does no I/O and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from proxy.model import oversized_json
from proxy.model.conversation import CHAT, Kind, Message, MessageFormat, Prompt
from proxy.model.limits import Correction, Corrections, CountUnit, LearnedLimits, Margin, Quality, Shape
from proxy.model.outcome import Usage
from proxy.model.ports import Medium, Memory, Meter
from proxy.model.structs import replace
from proxy.tokens.counting_key import SEED, CountingKey, counting_key_for
from proxy.tokens.encodings import encoding
from proxy.tokens.families import ASSUMED_MARGIN, BUILT_IN, EXACT_MARGIN, Families, Family
from proxy.tokens.formats import FORMATS, BodyFormat
from proxy.tokens.messages import text_of_raw
from proxy.tokens.request_overhead import PARTS
from proxy.tokens.truncation import MIN_USAGE

RawMessage = tuple[str, bytes]  # role and JSON object
NOTHING = LearnedLimits()
CERTAIN_SALT, FIXED_SALT, MEDIA_SALT = 1, 2, 4  # xored with the seed: keys of other values in the same cache
SCHEMA = PARTS[3]  # the name of the tokens of a response schema, where there is one
STORED = "stored"  # the name of the tokens that the upstream has stored and that precede the request's own
NOISE_TOKENS = 24  # where counts are exact, usage within this of the count is noise: the margin's constant covers it
RATIO_RANGE = (0.25, 8.0)  # no known tokenizer differs more from the encodings
MAX_SAMPLES = 128  # pieces of an oversized text that are counted: 4 MB, up to 2 s
MIN_SAMPLE_TOKENS = 100  # of a prompt that corrections are learned from
# Usage outside this range does not count what was sent: some gateways leave out cached tokens, some servers truncate
# silently, and a web search may be many times the prompt. As multiples of the family's ratio, or as a difference.
PLAUSIBLE, PLAUSIBLE_TOKENS = (0.7, 3.0), (-400, 1_900)
LEARNED_BASE = 20  # tokens of the margin that remain once the errors of counts are known
NO_TOOLS = len(b"null")  # bytes of a field without tools: null, or an empty list
ONLINE = ":online"  # suffix of models for which OpenRouter inserts web results into the prompt


def meter_for(
    prompt: Prompt,
    model: str,
    memory: Memory,
    learned: LearnedLimits = NOTHING,
    tokenizer: str | None = None,
    families: Families = BUILT_IN,
) -> Meter:
    """The meter of a request for a model: the request's own, or one that it may be switched to.

    `tokenizer` is the path of the user's tokenizer.json for this model. With it, a learned correction is ignored,
    because it was learned with another encoding.
    """
    body = FORMATS[prompt.api]
    first = prompt.messages[0] if prompt.messages else None
    system = first if first is not None and first.role in body.instructions and first.index <= 0 else None
    schema = (1 if system is None else 2) if body.has_schema(prompt.head) else 0
    counting = counting_key_for(model, schema, prompt.opaque, tokenizer, families, prompt.api)
    family, scale, known = counting.family, learned.scale, learned.media
    shape = Shape.TOOLS if any([len(prompt.head.get(key, b"")) > NO_TOOLS for key in body.tools]) else Shape.TEXT
    correction = None if family.own else _plausible(learned.correction, shape, family)
    factor, offset = scale * family.factor, 0
    if correction is not None:
        factor, offset = scale * (correction.ratio or family.factor), round(scale * correction.offset)
    return RequestMeter(
        prompt,
        body,
        counting,
        memory,
        system=system,
        factor=factor,
        scale=scale,
        correction=correction,
        known=known,
        shape=shape,
        offset=offset,
    )


def prompt_tokens(
    model: str, fields: Mapping[str, bytes], blocks: Sequence[Sequence[RawMessage]], api: str = CHAT
) -> int:
    """Prompt tokens of a request, counted without a cache and without corrections.

    `fields` are the body's other top-level fields as raw JSON. A block is a message with calls and its results, or any
    other message. Never raises.
    """
    only_counted = cast(MessageFormat, None)
    groups = [[Message(raw, role, Kind.OTHER, only_counted) for role, raw in block] for block in blocks]
    prompt = Prompt(model, tuple(message for group in groups for message in group), fields, api=api)
    meter = meter_for(prompt, model, _NoMemory())
    return sum(meter.fixed.values()) + sum(sum(meter.costs(group)) for group in groups)


class _NoMemory:
    """Implements `Memory` and keeps nothing."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        return None

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        pass


def unit_of(meter: Meter) -> CountUnit | None:
    """How a meter counts, without what refusals taught. None if nothing can be learned from this request's usage: a
    part's cost is assumed, the provider adds web results, or the tokenizer is the user's."""
    if not isinstance(meter, RequestMeter) or not meter.certain:
        return None
    family = meter.counting.family
    if family.own or family.recipe.hidden_search:
        return None
    return CountUnit(meter.factor / meter.scale, meter.added, meter.shape, SCHEMA in meter.fixed)


def sample_of(model: str, family: Family, unit: CountUnit | None, counted: int, usage: Usage) -> tuple[int, int] | None:
    """What a response's usage says of a count: the prompt's tokens of the encoding, and the upstream's. `counted` is
    our count of the prompt, made with `unit`.

    None if nothing can be learned: a very short prompt, a part with an assumed cost, an implausible figure.
    """
    if unit is None or usage.cached > usage.prompt or model.endswith(ONLINE):
        return None
    encoded, used = unit.encoded(counted), usage.prompt
    if encoded < MIN_SAMPLE_TOKENS or used < MIN_USAGE:
        return None
    own = family.factor * encoded
    least = min(PLAUSIBLE[0] * own, own + PLAUSIBLE_TOKENS[0])
    return (encoded, used) if least <= used <= max(PLAUSIBLE[1] * own, own + PLAUSIBLE_TOKENS[1]) else None


def is_noise(family: Family, unit: CountUnit, counted: int, usage: Usage) -> bool:
    """Whether a model's counts are exact and usage is so near to one, made with `unit`, that it means nothing."""
    return family.ratio is None and abs(usage.prompt - unit.encoded(counted)) <= NOISE_TOKENS


def _plausible(found: Corrections | None, shape: Shape, family: Family) -> Correction | None:
    """The correction of prompts of a shape. Where counts are exact, no ratio is learned."""
    correction = None if found is None else found.of(shape)
    if correction is None or correction.ratio is None:
        return correction
    if family.ratio is None:
        return replace(correction, ratio=None)
    return correction if RATIO_RANGE[0] <= correction.ratio <= RATIO_RANGE[1] else None


@dataclass(frozen=True, eq=False)
class RequestMeter:
    """Implements `Meter`. The cache holds tokens of the family's encoding; `factor` converts to the model's, of which
    `offset` more are counted once.

    `known`: what usage showed of parts whose cost the body does not show, by digest; `rate`: of the usual costs of all
    other such parts.
    """

    prompt: Prompt
    body: BodyFormat
    counting: CountingKey
    memory: Memory
    system: Message | None
    factor: float
    scale: float
    correction: Correction | None
    known: Callable[[int], int | None] | None = None
    shape: Shape = Shape.TEXT
    offset: int = 0
    provider_counted: bool = False  # the upstream counted this prompt
    stated: Margin | None = None
    rate: float = 1.0
    allowance: int = 0

    @cached_property
    def quality(self) -> Quality:
        """Exact if encoding and recipe are the model's own; calibrated if only the encoding is, or if usage, a refusal
        or the upstream's own count corrected the counts; else estimated."""
        if self.provider_counted:
            return Quality.CALIBRATED
        family, correction = self.counting.family, self.correction
        if family.ratio is None:
            if self.factor != 1.0 or self.offset:
                return Quality.CALIBRATED
            return Quality.EXACT if self.certain else Quality.ESTIMATED
        known = family.own or (correction is not None and correction.sure) or self.scale != 1.0
        return Quality.CALIBRATED if known else Quality.ESTIMATED

    @cached_property
    def margin(self) -> Margin:
        """The margin that counts of this quality need."""
        family = self.counting.family
        if self.stated is not None:
            return self.stated
        if family.ratio is None:
            margin = EXACT_MARGIN if self.quality is Quality.EXACT else ASSUMED_MARGIN
        else:
            margin = family.margin if self.quality is Quality.ESTIMATED else family.calibrated
        share = self.correction.share if self.correction is not None else None
        if self.correction is None or share is None:
            return Margin(margin.base + self.allowance, margin.share)
        base = margin.base if family.ratio is None else min(margin.base, LEARNED_BASE)
        return Margin(base + self.allowance, share + self.correction.doubt(family.factor))

    @cached_property
    def certain(self) -> bool:
        """Whether the cost of every part of the prompt is known, not assumed."""
        if not self._head[-1]:
            return False
        return not self.prompt.opaque or all(not m.hidden and self._certain(m) for m in self.prompt.messages)

    def _certain(self, message: Message) -> bool:
        if self.body.parts not in message.raw:
            return True
        key = xxh3_128_digest(message.raw, self.counting.seed ^ CERTAIN_SALT)
        found = self.memory.get(key)
        if found is None:
            found = (int(self.body.certain(replace(message, raw=_abridged(message.raw)), self.counting.rules)),)
            self.memory.put(key, found)
        return found != (0,)

    @cached_property
    def fixed(self) -> Mapping[str, int]:
        """Tokens besides the messages, by name (`request_overhead.PARTS`)."""
        tokens = zip(PARTS, self._scaled(self._head[:-1]), strict=True)
        found = {part: count for part, count in tokens if count or part == PARTS[0]}
        if self.offset:
            found[PARTS[0] if self.offset > 0 else max(found, key=lambda part: found[part])] += self.added
        return found | {STORED: self.prompt.stored.tokens} if self.prompt.stored.tokens else found

    @cached_property
    def added(self) -> int:
        """The offset, as far as there are fixed tokens that a negative one can take from."""
        return self.offset if self.offset >= 0 else max(self.offset, -sum(self._scaled(self._head[:-1])))

    @cached_property
    def _head(self) -> tuple[int, ...]:
        """The figures of `fixed_costs`, then 1 if they are certain, else 0."""
        key = xxh3_128_digest(self._head_raw, self.counting.seed ^ FIXED_SALT)
        found = self.memory.get(key)
        if found is None or len(found) != len(PARTS) + 1:
            found = self._counted_head()
            self.memory.put(key, found)
        return found

    @property
    def _head_raw(self) -> bytes:
        head = [self.prompt.head.get(key, b"") for key in self.body.keys]
        return b"\0".join((*head, b"" if self.system is None else self.system.raw))

    def _counted_head(self) -> tuple[int, ...]:
        head, body, rules = self.prompt.head, self.body, self.counting.rules
        text = None if self.system is None else text_of_raw(_abridged(self.system.raw))
        if sum(len(head.get(key, b"")) for key in body.keys) > oversized_json.OUTSIZE:
            tools, schema = (self._fields_in_pieces(keys) for keys in (body.tools, body.schemas))
            return rules.recipe.base, rules.recipe.tools + tools, 0, schema, 0
        try:
            return (*body.fixed_costs(head, text, rules), int(body.is_certain(head, rules)))
        except RecursionError:
            return (*body.fixed_as_text(head, rules), 0)

    def _fields_in_pieces(self, keys: Sequence[str]) -> int:
        raws = [self.prompt.head.get(key, b"") for key in keys]
        return sum(self._in_pieces(raw, [(0, len(raw))]) for raw in raws)

    @cached_property
    def key(self) -> str:
        """Identifies how it counts texts."""
        return f"{self.counting.id!r} {self.factor!r}"

    def text(self, text: str) -> int:
        """Tokens of a text on its own."""
        return round(self.factor * self.counting.rules.count(text))

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        """The longest head (or tail) of a text of at most `tokens` tokens."""
        return encoding(self.counting.family.encoding).cut(text, int(tokens / self.factor), tail)

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens that each message of one block adds to the prompt."""
        key = xxh3_128_digest(_joined(messages), self.counting.seed)
        found = self.memory.get(key)
        if found is None or len(found) != len(messages):
            found = self._counted(messages)
            self.memory.put(key, found)
        scaled = found if self.factor == 1.0 else self._scaled(found)
        if not self.prompt.opaque:
            return scaled
        return tuple([count + m.hidden + self._more(m) for count, m in zip(scaled, messages, strict=True)])

    def _more(self, message: Message) -> int:
        """Tokens that a message costs more than with the usual costs of its media."""
        if self.provider_counted or (self.known is None and self.rate == 1.0):
            return 0
        unit = self.counting.rules.unit * self.factor
        usual = sum(tokens for _, tokens in self._usual(message))
        return sum(medium.tokens for medium in self.media((message,))) - round(unit * usual)

    def media(self, messages: Sequence[Message]) -> tuple[Medium, ...]:
        """The parts of messages whose cost the body does not show. Empty if the upstream counted this prompt."""
        if self.provider_counted or not self.prompt.opaque:
            return ()
        return tuple([self._medium(*part) for message in messages for part in self._usual(message)])

    @cached_property
    def _teaches(self) -> bool:
        """Whether the media are all that usage shows of this prompt and its body does not."""
        certain = bool(self._head[-1]) if self.body.shows_all is None else self.body.shows_all(self.prompt.head)
        return certain and not any(m.hidden for m in self.prompt.messages)

    def _medium(self, digest: int, usual: int) -> Medium:
        tokens = None if self.known is None else self.known(digest)
        if tokens is not None:
            return Medium(digest, tokens, True)
        digest = digest if self._teaches else 0
        return Medium(digest, round(self.rate * self.counting.rules.unit * self.factor * usual), False)

    def _usual(self, message: Message) -> Sequence[tuple[int, int]]:
        """Digests of the media of a message, and what they usually cost in tokens of the model."""
        if self.body.parts not in message.raw:
            return ()
        key = xxh3_128_digest(message.raw, self.counting.seed ^ MEDIA_SALT)
        found = self.memory.get(key)
        if found is None:
            found = self._media_of(message)
            self.memory.put(key, found)
        return tuple(zip(found[::2], found[1::2], strict=True))

    def _media_of(self, message: Message) -> tuple[int, ...]:
        try:
            costs = self.body.assumed(replace(message, raw=_abridged(message.raw)), self.counting.rules)
        except RecursionError:  # too deeply nested to parse: counted as text
            return ()
        return tuple(
            n
            for cost in costs
            for n in (xxh3_64_intdigest(cost.key.encode("utf-8", "surrogatepass"), SEED), cost.tokens)
        )

    def with_media(self, rate: float, allowance: int = 0) -> Meter:
        """A meter that counts a part of unknown cost as `rate` times its usual cost, with a wider margin."""
        return replace(self, rate=rate, allowance=allowance)

    def with_fields(self, fields: Mapping[str, bytes]) -> Meter:
        """A meter of the same request with other values of these fields."""
        return replace(self, prompt=replace(self.prompt, head={**self.prompt.head, **fields}))

    def _counted(self, messages: Sequence[Message]) -> tuple[int, ...]:
        if any(len(message.raw) > oversized_json.OUTSIZE for message in messages):
            return self._counted_in_pieces(messages)
        try:
            return self.body.costs(messages, self.counting.rules)
        except RecursionError:  # too deeply nested to parse: counted as text, which costs no less
            return tuple(self.counting.rules.count(m.raw.decode("utf-8", "replace")) for m in messages)

    def _counted_in_pieces(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The same for oversized messages: the middles of long strings are cut out and counted separately."""
        cuts = [oversized_json.cuts(m.raw, oversized_json.OUTSIZE, images=True) for m in messages]
        small = [
            replace(m, raw=oversized_json.without(m.raw, g)) if g else m for m, g in zip(messages, cuts, strict=True)
        ]
        try:
            found = self.body.costs(small, self.counting.rules)
        except RecursionError:
            found = tuple(self._in_pieces(m.raw, [(0, len(m.raw))]) for m in small)
        return tuple(c + self._in_pieces(m.raw, g) for c, m, g in zip(found, messages, cuts, strict=True))

    def _in_pieces(self, raw: bytes, cuts: Sequence[tuple[int, int]]) -> int:
        texts = (cut for cut in cuts if not oversized_json.is_image(raw, cut))
        return sum(_sampled(raw, cut, self.counting.rules.count) for cut in texts)

    def _scaled(self, found: Sequence[int]) -> tuple[int, ...]:
        factor = self.factor
        return tuple([int(count * factor + 0.5) for count in found])

    def scaled(self, ratio: float) -> Meter:
        """A meter with counts `ratio` times as large, as learned from a refusal."""
        offset = round(self.offset * ratio)
        return replace(self, factor=self.factor * ratio, scale=self.scale * ratio, offset=offset)

    def counted(self, ratio: float, margin: Margin | None = None) -> Meter:
        """A meter with counts `ratio` times as large, because the upstream counted this prompt. `margin` replaces that
        of its quality."""
        offset = round(self.offset * ratio)
        return replace(self, factor=self.factor * ratio, offset=offset, provider_counted=True, stated=margin)

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        """None if the block's cost is cached; else its key and the bytes that the cost depends on. Without messages:
        the same for the cost besides the messages."""
        raw, mark, size = _joined(messages), b"\0", len(messages)
        seed = self.counting.seed
        if not messages:
            raw, mark, size, seed = self._head_raw, b"|head\0", len(PARTS) + 1, seed ^ FIXED_SALT
        key = xxh3_128_digest(raw, seed)
        found = self.memory.get(key)
        known = (found is not None and len(found) == size) or len(
            raw
        ) > oversized_json.OUTSIZE  # joining it would copy it
        return None if known else (key, self.counting.id + mark + raw)


def _abridged(raw: bytes) -> bytes:
    """The message; if it is oversized, without the middles of its long strings."""
    if len(raw) <= oversized_json.OUTSIZE:
        return raw
    return oversized_json.without(raw, oversized_json.cuts(raw, oversized_json.OUTSIZE, images=True))


def _sampled(raw: bytes, cut: tuple[int, int], count: Callable[[str], int]) -> int:
    """Tokens of a long text, counted in pieces. A very long one is sampled (error about 1 %): it exceeds any window."""
    pieces = max(1, (cut[1] - cut[0]) // oversized_json.PIECE)
    step = -(-pieces // MAX_SAMPLES)
    if step == 1:
        return sum(map(count, oversized_json.pieces(raw, cut)))
    spans = [
        (cut[0] + oversized_json.PIECE * place, cut[0] + oversized_json.PIECE * (place + 1))
        for place in range(0, pieces, step)
    ]
    sampled = sum(count(piece) for span in spans for piece in oversized_json.pieces(raw, span))
    return sampled * (cut[1] - cut[0]) // (len(spans) * oversized_json.PIECE)


def _joined(messages: Sequence[Message]) -> bytes:
    """The bytes of a block. JSON contains no NUL, so a NUL separates its messages unambiguously."""
    return messages[0].raw if len(messages) == 1 else b"\0".join([message.raw for message in messages])
