"""Bodies by chance before a strict upstream: no 500 of ours, what fits goes byte for byte, what is sent is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from tests.e2e.world import listening
from tests.fuzz.bodies import chat, mutated, mutations, scars, seeds
from tests.hostile.harness import CHAT, Answered, Running, running
from tests.hostile.raw import post, tried

CONTROLS = (
    (),
    (b"x-plimsoll-mode: observe",),
    (b"x-plimsoll-mode: off",),
    (b"x-plimsoll-mode: strict",),
    (b"x-plimsoll-ladder: chat",),
    (b"x-plimsoll-ladder: agent",),
    (b"x-plimsoll-ladder: rag",),
    (b"x-plimsoll-ladder: economy",),
    (b"x-plimsoll-ladder: lossless",),
    (b"x-plimsoll-pin: 0,2",),
    (b"x-plimsoll-pin: -1,x",),
    (b"x-plimsoll-lorebook: nobody",),
)
UNCHANGED = 4  # of CONTROLS: what goes upstream is what came, or as the default ladder has it


class Bench:
    """A strict upstream, and a proxy before it."""

    def __init__(self, simulator: Simulator, port: int, proxy: Running) -> None:
        self.simulator, self.port, self.proxy = simulator, port, proxy

    def straight(self, body: bytes, window: int) -> Answered:
        """What the upstream says to a body itself."""
        got = tried(self.port, post(body, b"x-sim-window: %d" % window))
        assert got is not None
        return got

    def through(self, body: bytes, window: int, *controls: bytes) -> tuple[Answered, list[bytes]]:
        """What a client gets, and the bodies that reached the upstream."""
        self.simulator.received.clear()
        headers = (b"x-sim-window: %d" % window, b"x-plimsoll-window: %d" % window, *controls)
        got = tried(self.proxy.port, post(body, *headers))
        assert got is not None, "no request is without an answer"
        return got, [r.body for r in tuple(self.simulator.received) if r.path == CHAT]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    app = simulator(SimulatorConfig())
    with listening(app) as port, running(f"http://127.0.0.1:{port}/v1") as proxy:
        yield Bench(app, port, proxy)
        assert not [line for line in proxy.lines if "a bug of ours" in line or "Traceback" in line]


def of_ours(got: Answered) -> str:
    """The code of an error that says that a request cannot fit; "" for any other answer."""
    if got.status != 400:
        return ""
    try:
        code: str = got.json["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return ""
    return code if code == "context_length_exceeded" else ""


windows = st.sampled_from((400, 1_000, 2_000, 8_192))
controls = st.integers(0, len(CONTROLS) - 1)


@given(seeds, windows, controls)
def test_a_valid_chat_gets_an_answer_and_stays_valid(bench: Bench, seed: int, window: int, control: int) -> None:
    body = json.dumps(chat(seed)).encode()
    straight = bench.straight(body, window)
    got, sent = bench.through(body, window, *CONTROLS[control])
    event(f"straight {straight.status}, through {got.status}")
    if straight.status == 200 and control < UNCHANGED:
        assert got.status == 200
        prompt = _prompt(straight)
        if prompt is not None and prompt + _reply(body) < 0.6 * window:
            assert sent == [body], "what fits goes byte for byte"
    if got.status != 200:
        assert of_ours(got) or control in (10, 11) or (control in (1, 2) and straight.status == 400), got
    for raw in sent[1:] if control in (1, 2) else sent:
        checked = bench.straight(raw, 10**9)
        assert checked.status == 200, "valid and paired, whatever its length"
    if sent and got.status == 200:
        assert bench.straight(sent[-1], window).status == 200, "within the window"


def _prompt(got: Answered) -> int | None:
    """The prompt's tokens, where the answer tells."""
    if not got.headers["content-type"].startswith("application/json"):
        return None
    tokens: int = got.json["usage"]["prompt_tokens"]
    return tokens


def _reply(body: bytes) -> int:
    """The most that a reply may take."""
    asked = json.loads(body)
    limit: int = asked.get("max_tokens", 300) * asked.get("n", 1)
    return limit


@given(seeds, mutations, scars, windows, controls)
def test_a_mutated_chat_is_answered_as_its_upstream_would(
    bench: Bench, seed: int, changes: list[tuple[int, int, int]], cuts: list[tuple[int, int]], window: int, control: int
) -> None:
    body = mutated(seed, changes, cuts)
    straight = bench.straight(body, window)
    got, sent = bench.through(body, window, *CONTROLS[control])
    event(f"straight {straight.status}, through {got.status}")
    if straight.status == 500:
        return  # the simulator's own
    assert got.status in (200, 400), got
    if straight.status == 200 and control < UNCHANGED - 1:
        assert got.status == 200, got
    if sent == [body]:
        assert got.status == straight.status, "what was invalid is told so in the upstream's own words"
    if control == 2:
        assert sent == [body], "in mode off nothing is touched"
    if straight.status == 200 and sent and got.status == 200:
        assert bench.straight(sent[-1], window).status == 200
