"""Extra calls: which headers are forwarded, and which caller they count for."""

from __future__ import annotations

from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.fair_queue import FairQueue
from proxy.upstreams.internal_client import InternalClient, caller_of, tenant_of
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
