"""Traffic by a script, for the figures of the board: what is asked, what must come of it, and what went upstream.

Its numbers are its own: tokens are counted by the simulator's parser, sums are made from the requests themselves.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from proxy.cli import demo
from proxy.simulator.app import Simulator
from proxy.simulator.openai_chat.counting import count_prompt

CHAT = "/v1/chat/completions"
RESERVE = 3000  # tokens for the reply of a request that sets no limit: the ladders' default
WINDOWS = {
    "gpt-4": 8192,
    "gpt-4o": 128_000,
    "gpt-4-0613": 8192,
    "gpt-3.5-turbo": 16_385,
    "gpt-4.1": 1_047_576,
    "other": 8192,
}
LEARNED = 2500  # the window that the upstream names when it refuses
QUARTER, MORE = "COUNT A QUARTER", "COUNT MORE"  # in a text: what the upstream reports of its tokens
SUMMARY = "<summary>They counted cargo; the crane is red.</summary>"  # the upstream's answer, always
SUMMARY_MODEL = "gpt-4o-mini"
FLOOR = 500  # tokens for the reply without which an upstream would refuse, where the request sets no limit
MILLION = 1_000_000
Message = str  # a message's JSON


class Price(NamedTuple):
    """US dollars for a million tokens, and what follows for a request."""

    input: float
    output: float
    cache_read: float

    def of(self, prompt: int, reply: int, cached: float = 0) -> float:
        """What a prompt costs of which some tokens come from the provider's cache, with its reply."""
        return ((prompt - cached) * self.input + cached * self.cache_read + reply * self.output) / MILLION


PRICES = {
    "gpt-4": Price(10, 20, 1),
    "gpt-4-0613": Price(10, 20, 1),
    "gpt-3.5-turbo-0125": Price(3, 6, 1),
    "gpt-4o": Price(2, 8, 1),
    "gpt-4.1": Price(4, 16, 2),
}
PRICE = '[[price]]\nmodel = "{}"\ninput = {}\noutput = {}\ncache_read = {}\n'
ROW = '[[upstream]]\nname = "second"\nurl = "UPSTREAM/v1"\nmodels = ["gpt-4.1"]\nheaders = ["x-scenario"]\n'
RULES = {
    "upstreams.toml": ROW,
    "callers.toml": '[[caller]]\nname = "everybody"\nmatch = "*"\n',
    "windows.toml": "".join(PRICE.format(name, *price) for name, price in PRICES.items()),
    "ladders/thrifty.toml": '[[step]]\nname = "prune_history"\nat = 0.5\nmax_messages = 60\nkeep_last = 40\n',
    "ladders/switching.toml": '[[step]]\nname = "switch_model"\nat = 0.9\nto = ["gpt-4o"]\n',
    "ladders/summing.toml": f'[[step]]\nname = "summarise_history"\nat = 0.85\nmodel = "{SUMMARY_MODEL}"\n',
}


def reported(body: bytes) -> int:
    """The prompt tokens that the upstream counts and reports."""
    tokens = count_prompt(body)
    return tokens // 4 if QUARTER.encode() in body else round(1.06 * tokens) if MORE.encode() in body else tokens


@dataclass(frozen=True, slots=True)
class Case:
    """One request of the script, and what must come of it. `model` and `to` are labels: of the model that is asked for,
    and of the one that is sent. `step`: the one that changes it."""

    name: str
    body: Mapping[str, Any] | None
    result: str = "passed"
    status: int = 200
    model: str = ""
    to: str = ""
    step: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = CHAT
    source: str = "litellm"
    window: int = 0
    planned: str = ""  # in mode observe: what would have been done


def say(text: str, model: str = "gpt-4o", **fields: Any) -> dict[str, Any]:
    return {"model": model, **fields, "messages": [{"role": "user", "content": text}]}


LONG: dict[str, Any] = demo.BODY
ANSWER = {"role": "assistant", "content": "38 tonnes; Inspector Okafor signed for that."}
NEXT = {"role": "user", "content": "And who looks after the tide tables?"}
LONGER = {**LONG, "messages": [*LONG["messages"], ANSWER, NEXT]}
SHORTER = {**LONG, "messages": LONG["messages"][:60], "max_tokens": 400}
HUGE = [{"type": "function", "function": {"name": f"that_does_whatever_it_is_for_{i}"}} for i in range(1_700)]
SHORT_OF_IT = {**LONG, "model": "gpt-4-0613", "messages": [*LONG["messages"][:99], NEXT], "max_tokens": 400}
GROWN = {**SHORT_OF_IT, "messages": [*SHORT_OF_IT["messages"], ANSWER, LONG["messages"][-1]]}
THRIFTY = {"x-plimsoll-ladder": "thrifty"}
CACHED = {"x-sim-cached": "1024"}  # what the upstream reports of its prompt cache
OBSERVE = {"x-plimsoll-mode": "observe", "x-sim-window": "100000"}
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
SCRIPT = (
    *[Case("short", say("hi"), model="gpt-4o")] * 3,
    Case("stream", say("hi", **STREAM), model="gpt-4o"),
    Case("cut", LONG, "fitted", model="gpt-4", step="prune_history"),
    Case("cut again", LONGER, "fitted", model="gpt-4", step="prune_history"),
    Case(
        "refused, then smaller",
        {**SHORTER, "model": "gpt-3.5-turbo-0125"},
        "healed",
        model="gpt-3.5-turbo-0125",
        step="prune_history",
        headers={"x-sim-window": f"{LEARNED}"},
        source="refusal",
        window=LEARNED,
    ),
    Case(
        "refused for good",
        {**SHORTER, "model": "gpt-3.5-turbo"},
        "refused",
        400,
        "gpt-3.5-turbo",
        headers={"x-sim-window": "20"},
    ),
    Case("observed, would be cut", LONG, model="gpt-4", headers=OBSERVE, planned="fitted"),
    Case("observed, would be refused", say("hi", "gpt-4", tools=HUGE), model="gpt-4", headers=OBSERVE, planned="unfit"),
    Case("observed, fits", say("hi"), model="gpt-4o", headers=OBSERVE, planned="passed"),
    Case("does not fit", say("hi", "gpt-4", tools=HUGE), "unfit", 400, "gpt-4"),
    Case("error", say("hi"), status=500, model="gpt-4o", headers={"x-sim-status": "500"}),
    Case("reply too long", say("hi", "gpt-4", max_tokens=8190), "fitted", model="gpt-4", step="clamp_output"),
    Case(
        "larger model",
        LONG,
        "fitted",
        model="gpt-4",
        to="gpt-4o",
        step="switch_model",
        headers={"x-plimsoll-ladder": "switching", "x-sim-window": "128000"},
        window=WINDOWS["gpt-4o"],
    ),
    Case(
        "summary",
        LONG,
        "fitted",
        model="gpt-4",
        step="summarise_history",
        headers={"x-plimsoll-ladder": "summing"},
    ),
    Case("cut early", SHORT_OF_IT, "fitted", model="gpt-4-0613", step="prune_history", headers=THRIFTY),
    Case("cut early again", GROWN, "fitted", model="gpt-4-0613", step="prune_history", headers=THRIFTY | CACHED),
    Case("unknown model", say("hi", "nobody-knows-it"), model="other", source="guess"),
    Case("cut by the upstream", say(f"{QUARTER} {'word ' * 3000}", "gpt-4.1"), model="gpt-4.1"),
    Case("counted otherwise", say(f"{MORE} {'word ' * 300}", "gpt-4.1"), model="gpt-4.1"),
    Case("wrong header", say("hi"), "rejected", 400, "other", headers={"x-plimsoll-mode": "sideways"}),
    Case("no model", say("hi", 7), "not_understood", 400, "other"),  # type: ignore[arg-type]
    Case(
        "breaks off",
        say("hi", **STREAM),
        "broken_off",
        model="gpt-4o",
        headers={"x-sim-abort": "3", "x-sim-text": "a b c d e f"},
    ),
    *[Case("files", None, status=404, path="/v1/files")] * 2,
    Case("not fitted", say("hi"), status=404, path="/openai/deployments/gpt-4o/images/generations"),
)


@dataclass(frozen=True, slots=True)
class Done:
    """A case and what became of it: tokens as the client sent them and as they went upstream (None: they did not),
    limits of the reply, loads of the window, and what the upstream reported."""

    case: Case
    prompt: int | None = None
    sent: int | None = None
    asked: int = 0
    granted: int = 0
    before: float | None = None
    after: float | None = None
    reported: int | None = None
    reply: int = 0
    cached: int = 0
    asked_messages: tuple[Message, ...] = ()
    sent_messages: tuple[Message, ...] = ()

    @property
    def too_long(self) -> bool:
        """Whether the upstream would have refused, or did refuse, what the client sent, and something else was sent."""
        window = self.case.window if self.case.result == "healed" else WINDOWS[self.model]
        return not self.case.planned and (self.prompt or 0) + (self.asked or FLOOR) > window

    @property
    def model(self) -> str:
        return self.case.model

    @property
    def model_sent(self) -> str:
        return self.case.to or self.case.model

    @property
    def cut(self) -> int:
        """Tokens that a step cut; in mode observe nothing is cut."""
        return 0 if self.prompt is None or self.sent is None else self.prompt - self.sent


def play(proxy: str, simulator: Simulator, key: str) -> list[Done]:
    """Sends all requests of the script to the proxy, one after the other, with this key."""
    return [_played(proxy, simulator, case, key, f"{key}-{index}") for index, case in enumerate(SCRIPT)]


def _played(proxy: str, simulator: Simulator, case: Case, key: str, tag: str) -> Done:
    headers = {"authorization": f"Bearer {key}", "x-scenario": tag, **case.headers}
    status, text = ask(proxy, case.path, case.body, headers)
    assert status == case.status, (case.name, status, text)
    if case.path != CHAT or case.result in ("rejected", "not_understood"):
        return Done(case)
    assert case.body is not None
    tagged = [one for one in tuple(simulator.received) if one.header(b"x-scenario") == tag.encode()]
    received = [one for one in tagged if SUMMARY_MODEL.encode() not in one.body]  # a summary may come last
    asked, first = case.body.get("max_tokens", 0), case.window or WINDOWS[case.model]
    prompt = count_prompt(json.dumps(case.body).encode())
    window = WINDOWS[case.model] if case.to else first
    before = (prompt + (asked or RESERVE)) / window
    if not received:
        return Done(case, prompt, asked=asked, before=before)
    sent, granted = count_prompt(received[-1].body), received[-1].json().get("max_tokens", 0)
    after = (sent + (granted or RESERVE)) / first
    answered = case.status == 200 and case.result != "broken_off"
    return Done(
        case,
        prompt,
        sent,
        asked,
        granted,
        before,
        after,
        reported(received[-1].body) if answered else None,
        len(SUMMARY.split()) if answered else 0,
        int(case.headers.get("x-sim-cached", 0)),
        messages_of(case.body),
        messages_of(received[-1].json()),
    )


def messages_of(body: Any) -> tuple[Message, ...]:
    """The messages of a request, each as one text."""
    return tuple(json.dumps(message, sort_keys=True) for message in body["messages"])


def ask(url: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body of an answer; of one that breaks off, what came of it."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, sent, dict(headers))
        answer = connection.getresponse()
        try:
            return answer.status, answer.read()
        except http.client.IncompleteRead as cut:
            return answer.status, cut.partial
    finally:
        connection.close()


T = TypeVar("T")


def summed(
    done: Iterable[T], name: Callable[[T], object], value: Callable[[T], float | None] = lambda one: 1
) -> dict[str, float]:
    """The sums of a value by name, without those that are 0."""
    sums: dict[str, float] = {}
    for one in done:
        if found := value(one):
            sums[str(name(one))] = sums.get(str(name(one)), 0) + found
    return sums
