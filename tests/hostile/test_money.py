"""The operator's money and secrets: where the operator's key goes, and what is asked in the operator's name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import read_settings
from tests.hostile.harness import CHAT, HELLO, Running, eventually, ok, refused, running, upstream
from tests.keys import checking_keys
from tests.recorder import Peer, Recorder, Request, Script, answer

KEY = "sk-canary-of-the-operator"
AT_ONCE, EACH = 8, 2  # extra calls of a kind under way: in all, and for one caller


@pytest.fixture(scope="module")
def paid() -> Iterator[tuple[Recorder, Running]]:
    """A proxy with a key of the operator's, and an admin port."""
    with upstream() as there, running(there.url, admin=True, PLIMSOLL_API_KEY=KEY) as proxy:
        yield there, proxy


def sent_key(there: Recorder) -> bool:
    """Whether the newest request that the upstream saw bore the operator's key."""
    return KEY.encode() in there.requests[-1].head


def without(proxy: Running, path: str, method: str = "", body: object = None, **headers: str) -> int:
    """The status of a request that brings no key of its own."""
    return proxy.ask(body, path, method, headers, key=None).status


def test_F16_the_operators_key_goes_only_to_the_endpoints_that_it_is_meant_for(
    paid: tuple[Recorder, Running],
) -> None:
    there, proxy = paid
    for path in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "//v1/responses/"):
        without(proxy, path, body=HELLO)
        assert sent_key(there), path
    without(proxy, "/v1/models")
    assert sent_key(there)
    for method, path in (
        ("GET", "/v1/organization/admin_api_keys"),
        ("POST", "/v1/organization/admin_api_keys"),
        ("GET", "/v1/files"),
        ("DELETE", "/v1/models"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/models/../organization/admin_api_keys"),
        ("POST", "/v1/chat%2Fcompletions"),
        ("GET", CHAT),
    ):
        without(proxy, path, method, body=HELLO if method == "POST" else None)
        assert there.requests[-1].target == path.encode(), "it is passed on"
        assert not sent_key(there), (method, path)


@pytest.mark.parametrize("credential", ["authorization", "x-api-key", "api-key"])
def test_F16_a_key_that_the_client_hides_is_not_replaced_by_the_operators(
    credential: str, paid: tuple[Recorder, Running]
) -> None:
    there, proxy = paid
    without(proxy, CHAT, body=HELLO, **{credential: "Bearer sk-mine", "connection": credential})
    assert not sent_key(there)
    assert not there.requests[-1].header(credential.encode())


def test_F16_a_client_with_a_key_of_its_own_never_gets_the_operators(paid: tuple[Recorder, Running]) -> None:
    there, proxy = paid
    proxy.ask(HELLO)
    assert there.requests[-1].header(b"authorization") == [b"Bearer sk-test"]


OWN = ("/metrics", "/healthz", "/readyz", "/inspect" + CHAT, "/inspect/v1/moderations", "/inspect")


@pytest.mark.parametrize("spelling", ["{}", "/{}", "{}/", "{}?x=1", "/v1/..{}", "/.{}"])
@pytest.mark.parametrize("path", OWN)
def test_F16_own_paths_never_reach_the_provider(path: str, spelling: str, paid: tuple[Recorder, Running]) -> None:
    there, proxy = paid
    before = len(there.requests)
    for method in ("GET", "POST", "DELETE"):
        answered = proxy.ask(HELLO if method == "POST" else None, spelling.format(path), method)
        assert (answered.status, answered.json["error"]["code"]) == (404, "not_found")
    assert len(there.requests) == before
    assert proxy.ask(HELLO if "inspect/v1/chat" in path else None, path, admin=True).status == (
        404 if path in OWN[-2:] else 200
    )


def test_F16_without_an_admin_port_they_are_here_and_nothing_else_is(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers) as proxy:
        for path in OWN[:3]:
            assert proxy.ask(path=f"/{path}/").status == 200
            assert proxy.ask(path=path, method="POST").status == 405
        assert proxy.ask(HELLO, "/inspect/" + CHAT).json["fits"]
        assert proxy.ask(HELLO, "/inspect/v1/moderations").status == 404
        assert proxy.ask(path="/inspect" + CHAT).status == 405
        assert there.requests == []
        assert proxy.ask(HELLO, "/v1//chat/completions/").headers["x-plimsoll-tokens"] == "8"
        assert there.requests[-1].target == b"/v1//chat/completions/", "as the client wrote it"
        assert proxy.ask(path="/v1/metrics").status == 200 and there.requests[-1].target == b"/v1/metrics"


def test_F16_the_admin_port_has_a_host_of_its_own(workers: int) -> None:
    with (
        upstream() as there,
        running(there.url, workers=workers, admin=True, PLIMSOLL_ADMIN_HOST="0.0.0.0") as proxy,
    ):
        (line,) = [line for line in proxy.lines if "/metrics" in line]
        assert f"http://0.0.0.0:{proxy.admin_port}" in line
        assert proxy.ask(path="/metrics", admin=True).status == 200
        assert any(f"http://127.0.0.1:{proxy.port}/v1" in line for line in proxy.lines)


def test_F16_no_setting_shows_the_key() -> None:
    assert KEY not in repr(read_settings({"PLIMSOLL_API_KEY": KEY}))


# F7: extra calls. The clients' upstream takes two keys; summaries and embeddings have an upstream of their own.

SUMMARY = {"PLIMSOLL_SUMMARY_MODEL": "gpt-4o-mini", "PLIMSOLL_SUMMARY_API_KEY": KEY}
EMBEDDINGS = {"PLIMSOLL_EMBEDDINGS_MODEL": "text-embedding-3-small", "PLIMSOLL_EMBEDDINGS_API_KEY": KEY}
GOOD = ("sk-good", "sk-also-good")


def entry(number: int, about: str) -> dict[str, str]:
    """A turn of some 47 tokens."""
    words = ("tide crane cargo pilot ballast harbour ledger rope".split() * 5)[:40]
    return {"role": "user" if number % 2 == 0 else "assistant", "content": f"{about} {number}: {' '.join(words)}"}


def full(about: str = "Entry", turns: int = 190) -> dict[str, object]:
    """A conversation that takes 1.3 times the 8,192 tokens of gpt-4."""
    return {"model": "gpt-4", "max_tokens": 500, "messages": [entry(i, about) for i in range(turns + 1)]}


def keyed(*good: str) -> Script:
    """An upstream that answers who sends one of these keys, and nobody else."""

    async def script(request: Request, peer: Peer) -> None:
        if request.header(b"authorization") in [[f"Bearer {key}".encode()] for key in good]:
            await peer.send(ok())
        else:
            await peer.send(refused("Incorrect API key provided.", b"401 Unauthorized", "invalid_api_key"))

    return script


async def telling(request: Request, peer: Peer) -> None:
    """An upstream that sums up and embeds."""
    if b"embeddings" in request.target:
        texts = json.loads(request.body)["input"]
        data = [{"index": i, "embedding": [1.0, 0.5]} for i in range(len(texts))]
        await peer.send(answer(json.dumps({"data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}).encode()))
    else:
        summary = {"message": {"role": "assistant", "content": "<summary>They counted cargo.</summary>"}}
        usage = {"prompt_tokens": 100, "completion_tokens": 23, "total_tokens": 123}
        await peer.send(answer(json.dumps({"choices": [summary], "usage": usage}).encode()))


def summaries(there: Recorder) -> list[Request]:
    """The requests for a summary that an upstream has seen."""
    return [r for r in there.requests if b"gpt-4o-mini" in r.body]


def owned(there: Recorder, **more: str) -> dict[str, Any]:
    """Settings with which the operator pays for both kinds."""
    own = {"PLIMSOLL_SUMMARY_UPSTREAM": there.url, "PLIMSOLL_EMBEDDINGS_UPSTREAM": there.url}
    return {**SUMMARY, **EMBEDDINGS, **own, **more}


def test_F7_a_key_that_the_upstream_rejects_causes_no_paid_call(workers: int) -> None:
    with upstream(keyed(*GOOD)) as there, upstream(telling) as payers:
        with running(there.url, workers=workers, **owned(payers)) as proxy:
            for key in ("sk-wrong", None, "sk-wrong"):
                for ladder in ("default", "chat", "rag"):
                    assert proxy.ask(full(), key=key, headers={"x-plimsoll-ladder": ladder}).status == 401
            assert payers.requests == []
            eventually(lambda: proxy.metric("plimsoll_extra_calls_total", result="unaccepted") >= 3)


def test_F7_a_key_that_the_upstream_accepted_causes_them_from_its_second_request_on() -> None:
    with upstream(keyed(*GOOD)) as there, upstream(telling) as payers, running(there.url, **owned(payers)) as proxy:
        assert proxy.ask(HELLO, key="sk-mistyped").status == 401  # it checks keys, as is known from now on
        for key in GOOD:
            first, second = (proxy.ask(full(f"Story of {key}"), key=key) for _ in range(2))
            assert first.status == second.status == 200
            assert "summarise_history" not in first.headers["x-plimsoll-steps"]
            assert "summarise_history" in second.headers["x-plimsoll-steps"], "another key must be accepted itself"
        assert proxy.ask(full("Story of sk-wrong"), key="sk-wrong").status == 401
        assert all(r.header(b"authorization") == [f"Bearer {KEY}".encode()] for r in payers.requests)
        assert not any(b"sk-good" in r.head for r in payers.requests)
        assert not any(b"Story of sk-wrong" in r.body for r in payers.requests)


def test_F7_a_key_that_is_rejected_later_causes_none_from_then_on() -> None:
    good = list(GOOD)

    async def script(request: Request, peer: Peer) -> None:
        await keyed(*good)(request, peer)

    with upstream(script) as there, upstream(telling) as payers, running(there.url, **owned(payers)) as proxy:
        assert proxy.ask(HELLO, key=GOOD[0]).status == 200
        good.clear()
        assert proxy.ask(HELLO, key=GOOD[0]).status == 401
        assert proxy.ask(full(), key=GOOD[0]).status == 401
        assert payers.requests == []


def test_S2_at_an_upstream_that_takes_any_key_none_is_accepted(workers: int, tmp_path: Path) -> None:
    """An invented key spends nothing of the operator's: neither an extra call nor the key of another upstream."""
    with upstream() as there, upstream(telling) as payers, upstream() as other:
        row = f'[[upstream]]\nname = "other"\nurl = "{other.url}"\nmodels = ["large-*"]\nkey = "LARGE_KEY"\n'
        (tmp_path / "upstreams.toml").write_text(row, "utf-8")
        more = {"PLIMSOLL_RULES": str(tmp_path), "LARGE_KEY": KEY}
        with running(there.url, workers=workers, **owned(payers, **more)) as proxy:
            for key in ("sk-invented", "sk-invented", "sk-another"):
                for _ in range(2 * workers):
                    assert proxy.ask(HELLO, key=key).status == 200
                    assert proxy.ask(full(), key=key).status == 200
                assert proxy.ask({**HELLO, "model": "large-1"}, key=key).status == 403
            assert payers.requests == other.requests == []


def test_F7_inspect_never_causes_one(workers: int) -> None:
    with upstream() as there, upstream(telling) as payers:
        with running(there.url, workers=workers, **owned(payers)) as proxy:
            for key in (None, "sk-test"):
                for _ in range(4):
                    assert proxy.ask(HELLO, key=key).status == 200, "whoever it is, it is accepted"
                assert proxy.ask(full(), "/inspect" + CHAT, key=key).json["tokens"]["prompt"] > 8192
            assert payers.requests == []


@pytest.mark.parametrize(("setting", "calls"), [("true", True), ("false", False)])
def test_F7_for_clients_without_a_key_a_setting_decides(setting: str, calls: bool) -> None:
    """With PLIMSOLL_API_KEY, and no key of its own for summaries."""

    async def script(request: Request, peer: Peer) -> None:
        await (telling if b"gpt-4o-mini" in request.body else keyed(KEY))(request, peer)

    more: Any = {"PLIMSOLL_API_KEY": KEY, "PLIMSOLL_SUMMARY_MODEL": "gpt-4o-mini"}
    with upstream(script) as there, running(there.url, **more, PLIMSOLL_EXTRA_CALLS_KEYLESS=setting) as proxy:
        for _ in range(2):
            assert proxy.ask(full(), key=None).status == 200
        asked = summaries(there)
        assert bool(asked) is calls
        assert all(r.header(b"authorization") == [f"Bearer {KEY}".encode()] for r in asked)
        assert proxy.ask(full("Other"), key="sk-wrong").status == 401
        mine = summaries(there)[len(asked) :]
        assert {r.header(b"authorization")[0] for r in mine} <= {b"Bearer sk-wrong"}, "its own key pays, or nobody"


def test_F7_a_key_in_a_query_is_a_key(workers: int) -> None:
    """One that the upstream rejects causes no call on the operator's, and takes nothing from those without."""

    async def script(request: Request, peer: Peer) -> None:
        await (telling if b"gpt-4o-mini" in request.body else keyed(KEY))(request, peer)

    more: Any = {"PLIMSOLL_API_KEY": KEY, "PLIMSOLL_SUMMARY_MODEL": "gpt-4o-mini"}
    with upstream(script) as there, running(there.url, workers=workers, **more) as proxy:
        for i in range(2 * workers):
            long = full(f"Story {i}")
            with contextlib.closing(proxy.connection()) as same:  # what one worker learned, the other does not know
                assert proxy.ask(HELLO, key=None, on=same).status == 200
                before = len(summaries(there))
                assert proxy.ask(long, f"{CHAT}?api_key=sk-wrong", key=None, on=same).status == 401
                assert not any(KEY.encode() in r.head for r in summaries(there)[before:])
                assert proxy.ask(long, key=None, on=same).status == 200
                assert any(KEY.encode() in r.head for r in summaries(there)[before:])


def test_F7_the_budget_ends_them_and_metrics_show_it(tmp_path: Path) -> None:
    with upstream() as there, upstream(telling) as payers:
        more = {"PLIMSOLL_EXTRA_CALLS_BUDGET": "200", "PLIMSOLL_EMBEDDINGS_MODEL": ""}
        more |= {"PLIMSOLL_RULES": checking_keys(tmp_path)}
        with running(there.url, **owned(payers, **more)) as proxy:
            proxy.ask(HELLO)
            assert proxy.metric("plimsoll_extra_budget_left_tokens") == 200
            statuses = [proxy.ask(full(f"Story {i}")).status for i in range(5)]
            assert statuses == [200] * 5, "it goes on without a summary"
            assert len(payers.requests) <= 3
            assert proxy.metric("plimsoll_extra_budget_left_tokens") == 0
            asked = len(payers.requests)
            eventually(lambda: proxy.metric("plimsoll_extra_calls_total", kind="summary", result="ok") == asked)
            assert proxy.metric("plimsoll_extra_tokens_total", kind="summary") == 123 * asked
            assert proxy.metric("plimsoll_extra_seconds_total", kind="summary") > 0
            assert proxy.metric("plimsoll_extra_calls_total", kind="summary", result="over_budget") >= 1
            assert proxy.log("the budget for extra calls is spent")


def test_F7_with_two_workers_the_budget_is_theirs_together() -> None:
    with upstream() as there, running(there.url, workers=2, PLIMSOLL_EXTRA_CALLS_BUDGET="1000") as proxy:
        for _ in range(20):
            proxy.ask(HELLO)
        eventually(lambda: proxy.metric("plimsoll_extra_budget_left_tokens") == 1000)


def crowd(proxy: Running, asked: list[tuple[str, dict[str, object]]]) -> list[threading.Thread]:
    """Requests at once, each with a key of its own."""
    made = [threading.Thread(target=lambda k=k, b=b: proxy.ask(b, key=k), daemon=True) for k, b in asked]
    for thread in made:
        thread.start()
    return made


class Slow:
    """An upstream whose answers wait for a sign; it knows who asks, and how many wait at once. `may`: whether who asks
    with a key is answered after the sign."""

    def __init__(self) -> None:
        self.go = False
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.total = self.most_total = 0
        self.done: list[str] = []
        self.may: Callable[[str], object] = lambda key: True

    async def __call__(self, request: Request, peer: Peer) -> None:
        if b"gpt-4o-mini" not in request.body and b"embeddings" not in request.target:
            await peer.send(ok())
            return
        key = request.header(b"authorization")[0].decode()
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        self.most_total = max(self.most_total, self.now.total())
        while not (self.go and self.may(key)):
            await asyncio.sleep(0.01)
        self.now[key] -= 1
        self.done.append(key)
        await telling(request, peer)


def test_H8_so_many_summaries_are_made_at_once_and_so_many_for_one_caller(workers: int) -> None:
    """In each process."""
    slow = Slow()
    more: Any = {"PLIMSOLL_SUMMARY_MODEL": "gpt-4o-mini", "PLIMSOLL_SUMMARY_TIMEOUT": "60"}
    with upstream(slow) as there, running(there.url, workers=workers, **more) as proxy:
        stories = [(f"sk-{caller}", full(f"{caller} {i}")) for caller in range(8) for i in range(6)]
        threads = crowd(proxy, stories)
        eventually(lambda: slow.now.total() >= AT_ONCE, 60)
        assert proxy.ask(HELLO).status == 200, "others go on"
        slow.go = True
        for thread in threads:
            thread.join(60)
        assert slow.most_total <= AT_ONCE * workers
        assert max(slow.most.values()) <= EACH * workers


def test_H9_one_tenants_texts_do_not_put_off_anothers(workers: int) -> None:
    slow = Slow()
    more: Any = {"PLIMSOLL_EMBEDDINGS_MODEL": "text-embedding-3-small", "PLIMSOLL_EMBEDDINGS_TIMEOUT": "60"}
    with upstream(slow) as there, running(there.url, workers=workers, **more) as proxy:
        threads = crowd(proxy, [("sk-much", full("Much", 2_000))])
        eventually(lambda: slow.now["Bearer sk-much"] == EACH, 60)
        (other,) = crowd(proxy, [("sk-little", full("Little", 260))])
        eventually(lambda: slow.now["Bearer sk-little"] >= 1, 60)
        # While the other has asked nothing, it computes, maybe in a process that waits for a processor.
        slow.may = lambda key: key != "Bearer sk-much" or slow.now["Bearer sk-little"] or not other.is_alive()
        slow.go = True
        for thread in (*threads, other):
            thread.join(60)
        little = [i for i, key in enumerate(slow.done) if key == "Bearer sk-little"]
        assert slow.done.count("Bearer sk-much") > 40
        # Those that a second look at the plan asks for come after an answer, and therefore later.
        assert little[len(little) * 3 // 4] < 30 * workers, "its questions come before most of the other's"
