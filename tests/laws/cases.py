"""Random requests: every kind of message, valid and not, with the window and the counter that they are fitted with."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from proxy.fit.lore import LOREBOOKS, Entry, Logic
from proxy.fit.plan import start
from proxy.model.conversation import Prompt
from proxy.model.limits import Margin, Quality, Window
from proxy.model.plan import CandidateModel, Draft, Facts
from proxy.model.ports import Meter
from proxy.model.structs import replace
from tests.laws.dialects import CHAT, DIALECTS, Dialect
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, ladder, words

SIZES = (0, 1, 4, 12, 30, 60, 120, 250, 500)  # words of a text
TIGHT = (0.15, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.6, 2.0, 4.0, 9.0)  # the window, as a multiple of the prompt
SPACE = (0, 40, 700)  # and tokens on top of it
ASKS = (None, None, 1, 20, 50, 300, 500, 3000, 0.1, 0.45, 0.9, 2.0)  # reply limits: tokens, or shares of the window
FIELDS = (("max_tokens",), ("max_completion_tokens",), ("max_tokens", "max_completion_tokens"))
MARGINS = (Margin(0, 0.0), Margin(100, 0.0), Margin(10, 0.07), Margin(50, 0.25))
RATIOS = (1.0, 1.0, 0.7, 1.13, 1.9)
LORE = (
    Entry(words(20, "always"), constant=True),
    Entry(words(9, "named"), keys=("m0x0", "m1x0", "m2x0"), order=2),
    Entry(words(300, "long"), "Long", keys=("M3X0", "hello"), secondary=("m3x2", "nobody"), logic=Logic.NOT_ALL),
    Entry("m4x1 and m5x2 " + words(30, "searched"), searched=True),
    Entry(words(20, "always"), constant=True),
)
VALID = 10  # kinds under this number keep to the protocol
KINDS = 13
Talk = Callable[[list[tuple[int, int, int]], int], list[dict[str, Any]]]
CHOICES = 14  # digits: how the conversation opens, how it is fitted (9), and what else is in it (4)


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and what is known when it is planned."""

    dialect: Dialect
    body: bytes
    facts: Facts
    default_reserve: int
    floor: int
    valid: bool
    pins: frozenset[int] = frozenset()

    @property
    def prompt(self) -> Prompt:
        """The request parsed."""
        return self.dialect.parse(self.body, self.pins)

    def opened(self, before: Draft) -> int:
        """The uid from which the newest block begins: its calls may be unanswered yet."""
        newest = [m for one in before.blocks[-1].messages for m in self.dialect.unfold(one)]
        return min(int(m["x-uid"]) for m in newest if "x-uid" in m)

    def counted(self, prompt: Prompt) -> Draft:
        """What the client sent, counted."""
        return start(prompt, ladder(default_reserve=self.default_reserve, floor=self.floor), self.facts)


@cache
def content(size: int, quirk: int, stem: str) -> str:
    """A text: prose, JSON with rows in one of three shapes, or lines."""
    count = SIZES[size % len(SIZES)]
    rows = [{"id": f"{stem}{i}", "text": words(5, f"{stem}r{i}")} for i in range(count // 5)]
    match quirk % 6:
        case 1:
            return json.dumps({"status": "success", "results": rows, "metadata": {"sources": [stem]}}, indent=1)
        case 2:
            return json.dumps(rows)
        case 3:
            return json.dumps({"data": {"items": rows, "note": "theirs"}, "result_count": 9})
        case 4:
            return "é " * count
        case _:
            return words(count, stem)


def call(ident: str, size: int) -> dict[str, Any]:
    arguments = json.dumps({"q": words(SIZES[size % 6])})
    return {"id": ident, "type": "function", "function": {"name": "search", "arguments": arguments}}


def rounds(place: int, size: int, quirk: int, count: int) -> list[dict[str, Any]]:
    """A turn with calls, and all their results."""
    idents = [f"call_{place}_{i}" for i in range(count)]
    results: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": ident, "content": content(size + i, quirk + i, f"t{place}i{i}x")}
        for i, ident in enumerate(idents)
    ]
    if quirk % 7 == 0:
        results[0]["content"] = [{"type": "text", "text": content(size, 0, "p")}, {"type": "text", "text": "end"}]
    return [{"role": "assistant", "content": None, "tool_calls": [call(i, quirk) for i in idents]}, *results]


def turn(place: int, kind: int, size: int, quirk: int) -> list[dict[str, Any]]:
    """The messages of one turn. Kinds from VALID on break the protocol."""
    text = content(size, quirk if kind > 1 else 0, f"m{place}x")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "x-part": 1}
    match kind:
        case 0:
            return [{"role": "user", "content": text}]
        case 1:
            return [{"role": "assistant", "content": text}]
        case 2 | 3:
            return rounds(place, size, quirk, 1)
        case 4:
            return rounds(place, size, quirk, 2 + quirk % 3)
        case 5:
            return [{"role": "user", "content": [{"type": "text", "text": text}, image, {"type": "text", "text": "?"}]}]
        case 6:
            return [{"role": "system", "content": text}]
        case 7:
            return [{"role": "developer", "content": text, "name": "dev"}]
        case 8:
            called = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
            return [called, {"role": "function", "name": "f", "content": text}]
        case 9:
            return [{"role": "assistant", "content": text, "refusal": None, "x-thinking": "t"}]
        case 10:
            return rounds(place, size, quirk, 1)[1:]  # a result that nobody asked for
        case 11:
            return rounds(place, size, quirk, 2)[:1]  # calls that nobody answered
        case _:
            return rounds(place, size, quirk, 3)[:-1]  # one call of three unanswered


def conversation(turns: list[tuple[int, int, int]], opening: int) -> list[dict[str, Any]]:
    """A whole conversation: it may begin with a system message, and end with an opened round of calls."""
    told = [{"role": "system", "content": words(SIZES[opening % 6], "s")}] if opening % 3 else []
    told += [m for place, one in enumerate(turns) for m in turn(place, *one)]
    if opening % 4 == 1:
        told += rounds(len(turns), opening % 9, opening, 1 + opening % 2)
    told = told or [{"role": "user", "content": "hello"}]
    # A key that nobody knows, by which we know it again, at either end.
    return [{**m, "x-uid": i} if i % 2 else {"x-uid": i, **m} for i, m in enumerate(told)]


def exchanges(turns: list[tuple[int, int, int]], opening: int) -> list[dict[str, Any]]:
    """A conversation as strict providers want it: a user asks, tools are called or not, and the assistant answers; it
    ends with a question, or with the results of an opened round."""
    told = [{"role": "system", "content": words(SIZES[opening % 6], "s")}] if opening % 3 else []
    for place, (kind, size, quirk) in enumerate(turns):
        asked, answer = (content(size + i, 0, f"m{place}{who}") or "?" for i, who in enumerate("ua"))
        parts: Any = [{"type": "text", "text": asked}]
        told.append({"role": "user", "content": parts if quirk % 7 == 3 else asked})
        for i in range(kind % 4):
            told += rounds(10 * place + i, size, quirk, 1 + (kind + i) % 2)
        told.append({"role": "assistant", "content": answer})
    told.append({"role": "user", "content": content(opening % 5, 0, "q") or "?"})
    told += rounds(10 * len(turns), opening % 9, opening, 1) if opening % 4 == 1 else []
    return [{**m, "x-uid": i} for i, m in enumerate(told)]


def meter_of(kind: int, margin: int, ratio: int) -> Meter:
    """One of the counters, with one of the margins and ratios."""
    made: Meter = WordMeter() if kind % 2 else CharMeter()
    quality = (Quality.EXACT, Quality.CALIBRATED, Quality.ESTIMATED)[ratio % 3]
    return replace(made, quality=quality, margin=MARGINS[margin % len(MARGINS)], ratio=RATIOS[ratio % len(RATIOS)])


def case(
    turns: list[tuple[int, int, int]],
    opening: int,
    fit: tuple[int, ...],
    extras: tuple[int, ...],
    talk: Talk = conversation,
    dialect: Dialect = CHAT,
) -> Case:
    """The request of these numbers: the same numbers, the same request, in whatever process."""
    tight, space, ask, reserve, floor, bound, kind, margin, ratio = fit
    n, fields, pin, candidates = extras
    told = talk(turns, opening)
    meter = meter_of(kind, margin, ratio)
    plain = dialect.parse(dialect.body(told, {}, {"model": "m"}, {}))
    size = start(plain, ladder(), Facts(Window(10**6), meter)).prompt
    tokens = max(40, int(size * TIGHT[tight % len(TIGHT)])) + SPACE[space % len(SPACE)]
    asked = ASKS[ask % len(ASKS)]
    limit = max(1, int(asked * tokens)) if isinstance(asked, float) else asked
    head: dict[str, Any] = {"x-first": {"b": [1.0, 2]}, "model": "m", "n": 1 + n % 3} if n % 2 else {"model": "m"}
    limits = {f: limit for f in FIELDS[fields % 3] if limit is not None}
    tools = [{"type": "function", "function": {"name": "search"}}]
    tail: dict[str, Any] = {"tools": tools, "x-last": "é", "stream": bool(n % 2)}
    if fields % 5 == 4:
        tail["thinking"] = {"type": "enabled", "budget_tokens": 30}
    max_input = (None, None, int(tokens * 0.5), int(tokens * 0.9))[bound % 4]
    other = meter.scaled(1.2)
    others = tuple(
        CandidateModel(
            f"rival-{i}", Window(tokens * (i + 1), (None, tokens)[i // 2], (None, 700)[i % 2]), lambda: other
        )
        for i in range(candidates % 4)
    )
    return Case(
        dialect=dialect,
        body=dialect.body(told, limits, head, tail),
        facts=Facts(Window(tokens, max_input, (None, 400)[bound % 2]), meter, others, {LOREBOOKS: LORE}),
        default_reserve=(0, 30, 3000)[reserve % 3],
        floor=(1, 20, 100, 500)[floor % 4],
        valid=all(kind < VALID for kind, _, _ in turns),
        pins=frozenset({pin % len(plain.messages)} if pin % 3 == 0 else ()),
    )


def digits(number: int, count: int) -> tuple[int, ...]:
    """A number's digits to the base 12: one drawn number for many small ones draws a case in a quarter of the time."""
    return tuple(number // 12**i % 12 for i in range(count))


def made(turns: list[int], choices: int, talk: Talk = conversation, dialect: Dialect = CHAT) -> Case:
    """The case of a list of turns and of all other choices, each a number."""
    opening, *rest = digits(choices, CHOICES)
    kinds = [(code // 108, code // 12 % 9, code % 12) for code in turns]
    return case(kinds, opening, tuple(rest[:9]), tuple(rest[9:]), talk, dialect)


def cases(kinds: int = KINDS, most: int = 14, dialects: Sequence[Dialect] = DIALECTS) -> st.SearchStrategy[Case]:
    """Random requests of these APIs, with kinds of turns under this number, and at most so many turns."""
    turns = st.lists(st.integers(0, kinds * 108 - 1), max_size=most)
    return st.builds(made, turns, st.integers(0, 12**CHOICES - 1), st.just(conversation), st.sampled_from(dialects))


def orderly(most: int = 9) -> st.SearchStrategy[Case]:
    """Random requests that the strictest provider takes."""
    turns = st.lists(st.integers(0, VALID * 108 - 1), max_size=most)
    return st.builds(made, turns, st.integers(0, 12**CHOICES - 1), st.just(exchanges), st.sampled_from(DIALECTS))


def drawn(seed: int, kinds: int = KINDS, most: int = 14, dialect: Dialect = CHAT) -> Case:
    """A request drawn by a plain seed, for processes that have no hypothesis."""
    rng = random.Random(seed)
    turns = [rng.randrange(kinds * 108) for _ in range(rng.randrange(most))]
    return made(turns, rng.randrange(12**CHOICES), dialect=dialect)
