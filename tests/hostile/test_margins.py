"""What fits is not cut: small windows, many answers, and limits that mean nothing (F6, R7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.tokens.encodings import encoding
from tests.hostile.harness import CHAT, Running, ok, refused, running, upstream
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


@pytest.fixture(scope="module")
def served(workers: int) -> Iterator[tuple[Running, Recorder]]:
    with upstream(strict) as up, running(up.url, workers=workers) as proxy:
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
    choice = {"type": "string", "enum": ["a" + WORD * (tokens - 30)]}
    schema = {"type": "object", "properties": {"choice": choice}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
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


# R7: counts that usage corrects.

UNKNOWN = "acme/harbour-9b"
TRUE = 1.02  # of its tokens for one of GPT-4o's


def about(tokens: int, model: str = UNKNOWN) -> dict[str, Any]:
    """A request of about so many tokens of GPT-4o."""
    return {"model": model, "messages": [{"role": "user", "content": "a" + WORD * tokens}]}


async def honest(request: Request, peer: Peer) -> None:
    """Reports what it counts: a little more than GPT-4o does, and 1 % more or less from one prompt to the next; for
    the one whose key says so, what a poisoner wants."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[]}'))
        return
    said = json.loads(request.body)
    used = sum(encoding("o200k_base").count(m["content"]) for m in said["messages"])
    factor = TRUE + 0.01 * (used % 3 - 1)
    if any(b"poison" in value for value in request.header(b"authorization")):
        factor = 2.5
    await peer.send(ok(round(used * factor), model=said["model"]))


def counted(proxy: Running, body: dict[str, Any], key: str = "sk-test", window: int = 15_000) -> int:
    """What the proxy counted for a prompt."""
    got = proxy.ask(body, headers={"authorization": f"Bearer {key}", "x-plimsoll-window": str(window)})
    assert got.status == 200
    return int(got.headers["x-plimsoll-tokens"])


def test_R7_the_margin_follows_the_errors_that_were_seen(workers: int) -> None:
    """Each worker learns from what it sees: whichever answers, a prompt that 150 tokens and 10 % would cut passes
    untouched after a few answers whose usage agreed."""
    with upstream(honest) as up, running(up.url, workers=workers) as proxy:
        cut = 0
        with proxy.each_worker() as connections:
            for number in range(24 * workers):
                body, on = json.dumps(about(3_500 - number)).encode(), connections[number % workers]
                assert proxy.ask(body, headers={"x-plimsoll-window": "4096"}, on=on).status == 200
                cut += up.requests[-1].body != body
        assert cut <= 8 * workers
        for tokens in (1_708, 3_000, 3_500):
            body = json.dumps(about(tokens)).encode()
            assert proxy.ask(body, headers={"x-plimsoll-window": "4096"}).status == 200
            assert up.requests[-1].body == body


def test_F6_a_prompt_of_a_model_that_is_known_by_usage_alone_passes_untouched_in_a_small_window() -> None:
    with upstream(honest) as up, running(up.url) as proxy:
        for number in range(8):
            counted(proxy, about(1_000 + number), window=4_096)
        for tokens in (632, 1_000, 1_400, 1_700):
            body = json.dumps(about(tokens)).encode()
            assert proxy.ask(body, headers=SMALL).status == 200
            assert up.requests[-1].body == body


def test_R7_one_caller_teaches_nothing_of_others_counts() -> None:
    with upstream(honest) as up, running(up.url) as proxy:
        for model in (UNKNOWN, "gpt-4o", "claude-sonnet-4-5"):
            before = counted(proxy, about(2_000, model), key="sk-new-1")
            for number in range(30):
                counted(proxy, about(1_500 + number, model), key="sk-poison")
            assert counted(proxy, about(2_000, model), key="sk-new-2") == before
            assert counted(proxy, about(2_000, model), key="sk-poison") > 1.5 * before


def test_R7_a_callers_own_answers_correct_its_own_counts() -> None:
    with upstream(honest) as up, running(up.url) as proxy:
        guess = counted(proxy, about(2_000))
        for number in range(4):
            counted(proxy, about(1_500 + number))
        assert guess > 2_300 and abs(counted(proxy, about(2_000)) - 2_000 * TRUE) < 60


@pytest.mark.parametrize("hosted", [{"tools": [{"type": "web_search"}]}, {"plugins": [{"id": "web"}]}])
def test_R7_usage_that_holds_what_a_host_found_teaches_nothing(hosted: dict[str, Any]) -> None:
    with upstream(honest) as up, running(up.url) as proxy:
        before = counted(proxy, about(2_000), key="sk-poison")
        fresh = counted(proxy, about(2_001), key="sk-other")
        for number in range(8):
            counted(proxy, {**about(1_500 + number), **hosted}, key="sk-hosted-poison")
        assert abs(counted(proxy, about(2_001), key="sk-hosted-poison") - fresh) <= 2 and before


HIDDEN = 400  # tokens of each prompt that the upstream does not count, and that a family's row says


async def narrow(request: Request, peer: Peer) -> None:
    """An upstream with a window of 5,000 and prompts of 1.2 tokens for one of GPT-4o's, but for a constant."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[]}'))
        return
    said = json.loads(request.body)
    used = round(1.2 * sum(encoding("o200k_base").count(m["content"]) for m in said["messages"])) - HIDDEN
    if used > 5_000:
        text = f"This model's maximum context length is 5000 tokens. However, your messages resulted in {used} tokens."
        await peer.send(refused(text))
    else:
        await peer.send(ok(used, model=said["model"]))


def test_W3_beyond_the_prompts_that_taught_a_constant_as_a_ratio_one_refusal_teaches_the_rest(workers: int) -> None:
    """Prompts of one size cannot tell a constant from a ratio. Up to three times that size errors that were seen
    decide, because a margin for the other case would cut what fits, and what is always cut proves nothing (R7)."""
    with upstream(narrow) as up, running(up.url, workers=workers) as proxy:
        for number in range(12 * workers):
            counted(proxy, about(1_200 + 40 * number))
        for words in (4_400, 4_600, 5_000):  # 4,880, 5,120 and 5,600 tokens
            before = len(up.requests)
            body = json.dumps(about(words)).encode()
            assert proxy.ask(body, headers={"x-plimsoll-window": "5000"}).status == 200
            assert len([r for r in up.requests[before:] if r.target == CHAT.encode()]) <= 2
