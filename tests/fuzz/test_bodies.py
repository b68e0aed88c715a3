"""Bodies by chance before a strict upstream: no 500 of ours, what fits goes byte for byte, what is sent is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from proxy.wire.ollama.options import without_truncation
from proxy.wire.scan import NotUnderstood
from tests.e2e.world import listening
from tests.fuzz.bodies import mutated, mutations, scars, seeds
from tests.fuzz.dialects import DIALECTS, Dialect
from tests.hostile.harness import Answered, Running, running
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

    def straight(self, api: Dialect, body: bytes, window: int, *, as_is: bool = False) -> Answered:
        """What the upstream says to a body itself. One that would shorten it is told to refuse it, unless `as_is`."""
        body = body if as_is else self.refusing(api, body)
        request = post(body, b"x-sim-window: %d" % window, *api.headers, target=api.path.encode())
        got = tried(self.port, request)
        assert got is not None
        return got

    def checked(self, api: Dialect, body: bytes) -> Answered:
        """What the upstream says to a body for which it has room."""
        if api.silent:
            body = json.dumps({**json.loads(body), "truncate": True}).encode()
        return self.straight(api, body, 10**9, as_is=True)

    def refusing(self, api: Dialect, body: bytes) -> bytes:
        """A request that its upstream does not shorten."""
        try:
            return without_truncation(body) if api.silent else body
        except NotUnderstood:
            return body

    def through(self, api: Dialect, body: bytes, window: int, *controls: bytes) -> tuple[Answered, list[bytes]]:
        """What a client gets, and the bodies that reached the upstream."""
        self.simulator.received.clear()
        headers = (b"x-sim-window: %d" % window, b"x-plimsoll-window: %d" % window, *api.headers, *controls)
        got = tried(self.proxy.port, post(body, *headers, target=api.path.encode()))
        assert got is not None, "no request is without an answer"
        return got, [r.body for r in tuple(self.simulator.received) if r.path == api.path]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    app = simulator(SimulatorConfig())
    with listening(app) as port, running(f"http://127.0.0.1:{port}/v1") as proxy:
        yield Bench(app, port, proxy)
        assert not [line for line in proxy.lines if "a bug of ours" in line or "Traceback" in line]


def is_too_long(got: Answered) -> bool:
    """Whether an error says that a request cannot fit."""
    if got.status != 400:
        return False
    try:
        error = got.json["error"]
        if isinstance(error, str):
            return "context_length_exceeded" in error or "exceed_context_size_error" in error
        return error.get("code") == "context_length_exceeded" or "prompt is too long" in error["message"]
    except (ValueError, KeyError, TypeError):
        return False


def is_refused_in_stream(got: Answered) -> bool:
    """Whether a stream of the Responses API says that a request was too long."""
    return got.status == 200 and b'"response.failed"' in got.body and b"context_length_exceeded" in got.body


def is_taken(got: Answered) -> bool:
    """Whether a request was answered, and not refused."""
    return got.status == 200 and not is_refused_in_stream(got)


windows = st.sampled_from((400, 1_000, 2_000, 8_192))
controls = st.integers(0, len(CONTROLS) - 1)
apis = pytest.mark.parametrize("api", DIALECTS, ids=lambda api: api.name)


@apis
@given(seeds, windows, controls)
def test_a_valid_request_gets_an_answer_and_stays_valid(
    bench: Bench, api: Dialect, seed: int, window: int, control: int
) -> None:
    body = json.dumps(_valid(api, seed, window)).encode()
    straight = bench.straight(api, body, window)
    got, sent = bench.through(api, body, window, *CONTROLS[control])
    event(f"straight {straight.status} {is_taken(straight)}, through {got.status} {is_taken(got)}")
    assert bench.checked(api, body).status == 200, "valid, whatever its length"
    if is_taken(straight) and control < UNCHANGED:
        assert is_taken(got), got
        if api.count(body) + _reply(api, body) < 0.6 * window:
            assert sent in ([body], [bench.refusing(api, body)]), "what fits goes byte for byte"
    if got.status != 200:
        assert is_too_long(got) or control in (10, 11) or (control in (1, 2) and straight.status == 400), got
    for raw in sent[1:] if control in (1, 2) else sent:
        checked = bench.checked(api, raw)
        assert checked.status == 200, (checked, "valid and paired, whatever its length")
    if sent and is_taken(got) and not (api.silent and control in (1, 2)):  # there it is shortened as it is straight
        assert is_taken(bench.straight(api, sent[-1], window)), "within the window"


def _valid(api: Dialect, seed: int, window: int) -> dict[str, Any]:
    """A valid request; one to Ollama names its window, else that of the request before it is loaded."""
    found = api.valid(seed)
    return {**found, "options": {**found.get("options", {}), "num_ctx": window}} if api.silent else found


def _reply(api: Dialect, body: bytes) -> int:
    """The most that a reply may take."""
    asked = json.loads(body)
    limit: int = asked.get(api.limit, 300) * asked.get("n", 1)
    return limit


@apis
@given(seeds, mutations, scars, windows, controls)
def test_a_mutated_request_is_answered_as_its_upstream_would(
    bench: Bench,
    api: Dialect,
    seed: int,
    changes: list[tuple[int, int, int]],
    cuts: list[tuple[int, int]],
    window: int,
    control: int,
) -> None:
    body = mutated(_valid(api, seed, window), changes, cuts)
    straight = bench.straight(api, body, window)
    got, sent = bench.through(api, body, window, *CONTROLS[control])
    event(f"straight {straight.status} {is_taken(straight)}, through {got.status} {is_taken(got)}")
    if 500 in {straight.status, *(bench.straight(api, raw, 10**9).status for raw in sent)}:
        return  # the simulator's own
    assert got.status in (200, 400), got
    if is_taken(straight) and control < UNCHANGED - 1:
        assert is_taken(got), got
    if sent == [body]:
        told = bench.straight(api, body, window, as_is=True)
        assert got.status == told.status, "what was invalid is told so in the upstream's own words"
    if control == 2:
        assert sent == [body], "in mode off nothing is touched"
    if is_taken(straight) and sent and is_taken(got):
        assert is_taken(bench.straight(api, sent[-1], window))
