"""What the scripted traffic costs, by the rules of OpenAI's prompt cache, from the messages that were really sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proxy.simulator.openai_chat.counting import count_prompt
from tests.deploy.traffic import PRICES, Done, Message

PRIMING = 3  # tokens of a prompt that stand after its last message
LEAST, STEP = 1024, 128  # tokens: the shortest prefix that is cached, and by what it grows
MOST_NEW = 2  # a cut is kept if all that was sent before is sent again but so many last messages


class Cost(NamedTuple):
    """The cost of one request that was answered, if only in part, in US dollars, without the prompt cache and net of
    it: as it was sent, and as its client sent it, None if that would have been refused."""

    done: Done
    sent: float
    net: float
    asked: float | None = None
    asked_net: float | None = None

    @property
    def basis(self) -> str:
        """What the cost follows from: the upstream's usage, our count of the prompt, or that of what broke off."""
        if self.done.case.result == "broken_off":
            return "partial"
        return "count" if self.done.reported is None else "usage"

    @property
    def original(self) -> str:
        """What would have become of the request as its client sent it."""
        return "too_long" if self.asked is None else "accepted"


def cacheable(tokens: int) -> int:
    """How many of the first tokens of a prompt the provider caches."""
    return 0 if tokens < LEAST else LEAST + (tokens - LEAST) // STEP * STEP


class Prefix(NamedTuple):
    """The longest run of first messages that an earlier prompt had, too: its tokens, and how many messages that prompt
    had after it."""

    tokens: int
    more: int


Messages = tuple[Message, ...]


def prefix_of(model: str, messages: Messages, before: list[Messages]) -> Prefix | None:
    """What a prompt repeats of those before it; None if that is nothing."""
    same, more = max(((_same(messages, other), -len(other)) for other in before), default=(0, 0))
    if not same:
        return None
    body = {"model": model, "messages": [json.loads(message) for message in messages[:same]]}
    return Prefix(count_prompt(json.dumps(body).encode()) - PRIMING, -more - same)


def _same(one: Messages, other: Messages) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass(frozen=True, slots=True)
class Repeat:
    """An answered request, and what it repeats: of what clients sent before, and of what went upstream before."""

    done: Done
    asked: Prefix | None
    sent: Prefix | None

    @property
    def expected(self) -> int:
        """The tokens that the cache should have held of what was sent."""
        return cacheable(self.sent.tokens) if self.sent else 0

    @property
    def prefix(self) -> str:
        """What became of the prefix that was sent before, if messages were cut."""
        if not self.done.cut:
            return ""
        return "first" if not self.asked else "kept" if self.sent and self.sent.more <= MOST_NEW else "moved"


def repeats(done: list[Done]) -> Iterator[Repeat]:
    """The answered requests that are long enough for a prompt cache, in their order."""
    asked: dict[str, list[Messages]] = {}
    sent: dict[str, list[Messages]] = {}
    for one in done:
        if one.case.status == 200 and one.sent is not None and one.sent >= LEAST:
            before, known = asked.setdefault(one.model, []), sent.setdefault(one.model_sent, [])
            whole, cut = one.asked_messages, one.sent_messages
            yield Repeat(one, prefix_of(one.model, whole, before), prefix_of(one.model_sent, cut, known))
            before.append(whole)
            known.append(cut)


def costs(done: list[Done]) -> Iterator[Cost]:
    """The costs of the requests that were answered, if only in part, by a model that has a price."""
    known = {id(one.done): one.asked.tokens for one in repeats(done) if one.asked}
    for one in done:
        if one.case.status == 200 and one.sent is not None and one.model_sent in PRICES:
            yield cost(one, cacheable(known.get(id(one), 0)))


def cost(one: Done, cached: int) -> Cost:
    """The cost of one request. `cached`: the tokens that the cache should hold of it as its client sent it."""
    assert one.prompt is not None and one.sent is not None
    price, prompt = PRICES[one.model_sent], one.sent if one.reported is None else one.reported
    reply = one.reply or int(one.case.headers.get("x-sim-abort", 0))  # a token for each event that came
    sent, net = price.of(prompt, reply), price.of(prompt, reply, one.cached)
    if one.too_long:
        return Cost(one, sent, net)
    if not one.cut:
        return Cost(one, sent, net, sent, net)
    return Cost(one, sent, net, price.of(one.prompt, one.reply), price.of(one.prompt, one.reply, cached))
