"""What a scripted client sends: the target, bodies with their limits and deadlines, uploads, and leaving."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.errors import ClientError
from proxy.http.memory_budget import Budget
from proxy.http.receiving import Message, Upload, read_body, receive_body, target_of
from proxy.http.relay import ClientDisconnected
from tests.http.test_relay import Visitor
from tests.serving import run


def part(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def scope(**values: Any) -> dict[str, Any]:
    return {"headers": [], "raw_path": b"/v1/x", "query_string": b"", **values}


@pytest.mark.parametrize(
    ("found", "target"),
    [
        (scope(), b"/v1/x"),
        (scope(query_string=b"a=1"), b"/v1/x?a=1"),
        ({**scope(), "plimsoll.target": b"/v1/x?"}, b"/v1/x?"),
        ({**scope(query_string=b"a"), "plimsoll.target": b"http://evil/v1/x?a"}, b"/v1/x?a"),
        (scope(raw_path=b"*"), b"*"),
    ],
)
def test_the_target_is_what_the_client_sent(found: dict[str, Any], target: bytes) -> None:
    assert target_of(found) == target


def test_a_body_is_read_whole() -> None:
    async def check() -> None:
        assert await read_body(scope(), Visitor(part(b"all")).receive, 3, 1, Budget(1 << 20).room()) == b"all"
        assert (
            await read_body(
                scope(), Visitor(part(b"a", True), part(b"", True), part(b"b")).receive, 3, 1, Budget(1 << 20).room()
            )
            == b"ab"
        )
        assert await read_body(scope(), Visitor({"type": "http.request"}).receive, 3, 1, Budget(1 << 20).room()) == b""

    run(check())


def test_a_body_over_the_limit_is_refused_before_or_while_it_comes() -> None:
    async def check() -> None:
        declared = scope(headers=[(b"content-length", b"4")])
        for found, visitor in (
            (declared, Visitor()),
            (scope(), Visitor(part(b"aa", True), part(b"aa", True))),
            (scope(), Visitor(part(b"aaaa"))),
        ):
            with pytest.raises(ClientError) as raised:
                await read_body(found, visitor.receive, 3, 1, Budget(1 << 20).room())
            assert raised.value.status == 413
            assert not raised.value.retry

    run(check())


def test_a_body_that_pauses_too_long_is_given_up() -> None:
    async def check() -> None:
        with pytest.raises(ClientError) as raised:
            await read_body(scope(), Visitor(part(b"a", True)).receive, 3, 0.1, Budget(1 << 20).room())
        assert (raised.value.status, raised.value.code) == (408, "body_timeout")

    run(check())


def test_a_client_that_leaves_in_its_body_is_gone() -> None:
    async def check() -> None:
        with pytest.raises(ClientDisconnected):
            await receive_body(Visitor({"type": "http.disconnect"}).receive, 1)

    run(check())


def test_an_upload_is_handed_on_and_then_its_client_is_watched() -> None:
    async def check() -> None:
        visitor = Visitor(part(b"b", True), part(b"c"))
        upload = Upload(b"a", visitor.receive, 1)
        watching = asyncio.ensure_future(upload.receive())
        assert [data async for data in upload.chunks()] == [b"a", b"b", b"c"]
        assert not watching.done()
        visitor.leaves.set()
        assert (await watching)["type"] == "http.disconnect"

    run(check())


def test_an_upload_that_is_stopped_leaves_its_client_to_be_watched() -> None:
    async def check() -> None:
        visitor = Visitor()
        upload = Upload(b"a", visitor.receive, 1)

        async def consume() -> None:
            async for _ in upload.chunks():
                pass

        sending = asyncio.create_task(consume())
        watching = asyncio.ensure_future(upload.receive())
        await asyncio.sleep(0.01)
        sending.cancel()
        visitor.leaves.set()
        assert (await asyncio.wait_for(watching, 30))["type"] == "http.disconnect"

    run(check())
