"""Extra calls: which headers are forwarded, and which caller they count for."""

from __future__ import annotations

import pytest

from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.fair_queue import FairQueue
from proxy.upstreams.internal_client import CallFailed, InternalClient, caller_of, tenant_of, voter_of
from proxy.upstreams.upstream import Upstream
from proxy.wire.headers import QUERY
from tests.recorder import Peer, Request, answer, recording
from tests.serving import run

ALICE = [(b"authorization", b"Bearer alice")]
BOB = [(b"authorization", b"Bearer bob")]


def test_callers_are_told_apart_by_their_credentials_alone() -> None:
    assert caller_of([*ALICE, (b"x", b"1")]) == caller_of([(b"x", b"2"), *ALICE]) != caller_of(BOB)
    assert b"alice" not in caller_of(ALICE)


def test_the_clients_own_upstream_gets_its_headers_but_those_of_its_body_and_a_dedicated_one_none() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"0123456789" * 10, b"418 I'm a teapot"))

    async def check() -> None:
        async with recording(script) as up:
            headers = [*ALICE, (b"x-mine", b"1"), (b"content-encoding", b"gzip"), (b"accept", b"text/plain")]
            account, queue = ExtraCalls(1_000), FairQueue(8, 8, 8, 8)
            clients, ours = Upstream(up.url), Upstream(up.url, api_key="sk-2")
            own = InternalClient(clients, "own", account, queue)
            dedicated = InternalClient(ours, "dedicated", account, queue, dedicated=True)
            for client in (own, dedicated):
                status, payload = await client.post(b"/v1/embeddings", b"{}", headers, 1_000)
                assert (status, payload) == (418, b"0123456789" * 10)
            mine, theirs = up.requests
            assert (mine.target, mine.body, theirs.body) == (b"/v1/embeddings", b"{}", b"{}")
            assert mine.header(b"authorization") == [b"Bearer alice"] and mine.header(b"x-mine") == [b"1"]
            assert mine.header(b"content-encoding") == mine.header(b"accept") == []
            assert theirs.header(b"authorization") == [b"Bearer sk-2"] and theirs.header(b"x-mine") == []
            await dedicated.close()
            await own.close()
            assert (clients.connections, ours.connections) == (1, 0)
            await clients.close()

    run(check())


def test_what_upstreams_may_part_clients_by_parts_what_they_teach_and_not_whose_money_it_is() -> None:
    browser, project = [*ALICE, (b"cookie", b"session=1")], [*ALICE, (b"openai-project", b"p")]
    assert len({tenant_of(headers) for headers in (ALICE, BOB, browser, project, [])}) == 5
    assert caller_of(ALICE) == caller_of(browser) == caller_of(project) == tenant_of(ALICE)
    keyed, other = [(QUERY, b"api_key=1")], [(QUERY, b"api-version=1")]
    assert len({caller_of(keyed), tenant_of(keyed), caller_of(other)}) == 2 and caller_of(other) == caller_of([])


def test_a_free_call_has_what_the_request_has_and_charges_nobody() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(b'{"count":7}'))

    async def check() -> None:
        async with recording(script) as up:
            account, upstream = ExtraCalls(1_000), Upstream(up.url, api_key="sk-2")
            client = InternalClient(upstream, "count", account, FairQueue(8, 8, 8, 8), dedicated=True)
            headers = [(b"anthropic-version", b"1"), (b"content-encoding", b"gzip"), (b"x-plimsoll-mode", b"fit")]
            for sent in ([*ALICE, *headers], headers, [(QUERY, b"key=1"), *headers]):
                assert await client.call_free(b"/tokenize", b"{}", sent, 1_000, "/v1") == b'{"count":7}'
            await client.call_free(b"/v1/messages/count_tokens", b"{}", ALICE, 1_000)
            hers, lent, keyed, under = up.requests
            assert hers.header(b"authorization") == [b"Bearer alice"] and hers.target == b"/tokenize"
            assert lent.header(b"authorization") == [b"Bearer sk-2"] and keyed.header(b"authorization") == []
            assert hers.header(b"anthropic-version") == [b"1"] and under.target == b"/v1/messages/count_tokens"
            assert hers.header(b"content-encoding") == hers.header(b"x-plimsoll-mode") == []
            assert account.left == 1_000
            await upstream.close()

    run(check())


@pytest.mark.parametrize("given", [answer(b"{}", b"404 Not Found"), answer(b"x" * 2_000), answer(b"", b"302 Found")])
def test_a_free_call_without_a_result_raises(given: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(given)

    async def check() -> None:
        async with recording(script) as up:
            upstream = Upstream(up.url)
            client = InternalClient(upstream, "count", ExtraCalls(1_000), FairQueue(8, 8, 8, 8))
            with pytest.raises(CallFailed):
                await client.call_free(b"/tokenize", b"{}", ALICE, 1_000)
            await upstream.close()

    run(check())


# Votes on what others are counted with.

VALID = (b"authorization", b"Bearer sk-valid")


@pytest.mark.parametrize(
    ("api", "name"),
    [
        *(("chat", b"x-goog-api-key"), ("chat", b"x-api-key"), ("responses", b"helicone-auth")),
        *(("messages", b"api-key"), ("messages", b"x-portkey-api-key"), ("chat", b"x-litellm-api-key")),
    ],
)
def test_S2_a_header_that_the_api_does_not_read_makes_no_further_voters(api: str, name: bytes) -> None:
    alone = {voter_of([(name, b"sk-%d" % n)], "10.0.0.1", True, api) for n in range(20)}
    beside = {voter_of([VALID, (name, b"sk-%d" % n)], "10.0.0.1", True, api) for n in range(20)}
    assert alone == beside == {b"address:10.0.0.1"}


@pytest.mark.parametrize(
    ("api", "name", "value"),
    [
        ("chat", *VALID),
        ("chat", b"api-key", b"sk-valid"),
        ("messages", b"x-api-key", b"sk-valid"),
        ("messages", *VALID),
    ],
)
def test_S2_a_key_that_the_api_reads_is_one_voter_from_every_address(api: str, name: bytes, value: bytes) -> None:
    assert voter_of([(name, value)], "10.0.0.1", True, api) == voter_of([(name, value)], "10.0.0.2", True, api)
    assert voter_of([(name, value)], "10.0.0.1", False, api) == b"address:10.0.0.1"
