"""What fits is not cut: small windows, many answers, and limits that mean nothing (F6, R7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.tokens.encodings import encoding
from tests.hostile.harness import CHAT, Running, ok, running, upstream
from tests.recorder import Peer, Recorder, Request, answer

WINDOW = 2_000
SMALL = {"x-plimsoll-window": str(WINDOW)}
WORD = " harbour"  # one token of GPT-4o's encoding


def prompt_of(tokens: int, **fields: Any) -> dict[str, Any]:
    """A request whose prompt is so many tokens of GPT-4o."""
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": "a" + WORD * (tokens - 8)}], **fields}


async def strict(request: Request, peer: Peer) -> None:
    """An upstream with a window of 2,000 that counts as GPT-4o does: a prompt that leaves room for a reply is
    answered, and the reply ends where the window does."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[]}'))
        return
    said = json.loads(request.body)
    used = 3 + sum(4 + encoding("o200k_base").count(m["content"]) for m in said["messages"])
    await peer.send(ok(used, model=said["model"]))


@pytest.fixture(scope="module", params=[1, 2])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Running, Recorder]]:
    with upstream(strict) as up, running(up.url, workers=request.param) as proxy:
        yield proxy, up


def sent(served: tuple[Running, Recorder], body: dict[str, Any], **headers: str) -> tuple[int, bytes, bytes]:
    """The status, what the client sent and what the upstream got (empty: nothing)."""
    proxy, up = served
    before = len(up.requests)
    raw = json.dumps(body).encode()
    got = proxy.ask(raw, headers={**SMALL, **headers})
    arrived = [r for r in up.requests[before:] if r.target == CHAT.encode()]
    return got.status, raw, arrived[-1].body if arrived else b""


@pytest.mark.parametrize("n", [1, 2, 8])
@pytest.mark.parametrize("tokens", [632, 1_000, 1_401, 1_708])
def test_F6_in_a_small_window_what_the_upstream_answers_passes_untouched(
    served: tuple[Running, Recorder], tokens: int, n: int
) -> None:
    status, raw, arrived = sent(served, prompt_of(tokens, n=n))
    assert status == 200 and arrived == raw


@pytest.mark.parametrize("n", [1, 4])
def test_F6_a_limit_that_each_answer_can_have_is_not_lowered(served: tuple[Running, Recorder], n: int) -> None:
    status, raw, arrived = sent(served, prompt_of(1_000, n=n, max_tokens=900))
    assert status == 200 and arrived == raw


def armed(tokens: int, **fields: Any) -> dict[str, Any]:
    """A request whose tools alone are about so many tokens: nothing in it can be cut."""
    tool = {"type": "function", "function": {"name": "f", "description": "a" + WORD * (tokens - 20)}}
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "tools": [tool], **fields}


@pytest.mark.parametrize("ask", [None, 400])
def test_F6_what_only_floor_or_margin_forbid_is_not_refused(served: tuple[Running, Recorder], ask: int | None) -> None:
    status, raw, arrived = sent(served, armed(1_900) if ask is None else armed(1_900, max_tokens=ask))
    assert status == 200
    if ask is None:
        assert arrived == raw
    else:
        assert 0 < json.loads(arrived)["max_tokens"] <= WINDOW - 1_900
        assert {**json.loads(arrived), "max_tokens": ask} == json.loads(raw)


def test_F6_what_cannot_fit_by_its_prompt_alone_is_still_refused(served: tuple[Running, Recorder]) -> None:
    status, _, arrived = sent(served, armed(2_050))
    assert status == 400 and arrived == b""


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "n"])
@pytest.mark.parametrize(
    "value", [0, -1, -(10**30), 10**9, 2**63, 2**64, 10**18, 10**400, 1e300, 1.5, 7.0, True, "9", [], {}, None]
)
def test_F6_a_limit_that_means_nothing_breaks_nothing(
    served: tuple[Running, Recorder], field: str, value: object
) -> None:
    """Whatever stands there goes to the upstream, which judges it; or our own 400 says why it cannot fit."""
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    proxy, up = served
    before = len(up.requests)
    raw = json.dumps(body)[:-1] + f', "{field}": ' + (str(value) if isinstance(value, int) else json.dumps(value)) + "}"
    raw = raw.replace(": True}", ": true}")
    got = proxy.ask(raw.encode(), headers=SMALL)
    assert got.status == 200 and len(up.requests) > before
    arrived = up.requests[-1].body
    if arrived != raw.encode():  # a limit over the window is lowered to what is left of it
        assert 0 < json.loads(arrived)[field] < WINDOW
