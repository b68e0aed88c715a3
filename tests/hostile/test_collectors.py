"""N6: a collector of traces that is hostile: requests go on as ever, and it learns nothing that it should not."""

from __future__ import annotations

from tests.hostile.harness import HELLO, eventually, friendly, running, upstream
from tests.recorder import Peer, Recorder, Request, Script, answer, head

KEY, OWN_KEY, SECRET_TEXT = "sk-canary-0123456789abcdef", "collector-canary-42", "the canary sings"
BLOCK = b"x" * (1 << 20)


async def silent(request: Request, peer: Peer) -> None:
    await peer.gone()


async def garbage(request: Request, peer: Peer) -> None:
    await peer.send(b"\x00\xff\r\n\r\nSSH-2.0-no\r\n" * 1_000)
    peer.close()


async def huge(request: Request, peer: Peer) -> None:
    """As much as is taken, at most a gigabyte."""
    await peer.send(head(b"200 OK", b"content-length: %d" % (1 << 30)))
    for _ in range(1 << 10):
        await peer.send(BLOCK)


async def endless_head(request: Request, peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n")
    for _ in range(1 << 8):
        await peer.send(b"x-more: " + BLOCK + b"\r\n")


async def packed(request: Request, peer: Peer) -> None:
    """What it says is not what it sends."""
    await peer.send(answer(b"\x1f\x8b\x08garbage", b"200 OK", (b"content-encoding: gzip",)))


def moved(status: bytes, to: str) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"", status, (b"location: " + to.encode(),)))

    return script


def exports(collector: Recorder) -> list[Request]:
    return list(collector.requests)


def test_N6_whatever_a_collector_does_no_request_suffers_and_nobody_else_hears_of_it(workers: int) -> None:
    with upstream() as there, upstream() as collector, upstream() as elsewhere:
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url.removesuffix("/v1"),
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={OWN_KEY}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "300",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        }
        redirects = [moved(b"301 Moved", elsewhere.url), moved(b"307 Temporary Redirect", elsewhere.url + "/traces")]
        scripts: list[Script] = [*redirects, packed, huge, garbage, silent, endless_head]
        with running(there.url, workers=workers, admin=True, **settings) as proxy:
            body = {**HELLO, "messages": [{"role": "user", "content": SECRET_TEXT}]}
            assert proxy.ask(body, key=KEY).status == 200
            before = proxy.settled_mb()
            for script in scripts:
                collector.script, count = script, len(exports(collector))
                for _ in range(20):
                    assert proxy.ask(body, key=KEY).status == 200
                eventually(lambda count=count: len(exports(collector)) > count)  # type: ignore[misc]
                assert proxy.ask(body, key=KEY).status == 200
            assert proxy.memory_mb(peak=True) - before < 64
            collector.script, count = friendly, len(exports(collector))
            eventually(lambda: proxy.ask(body, key=KEY).status == 200 and len(exports(collector)) > count)
            assert not elsewhere.requests, "an export goes nowhere else"
            assert {r.header(b"authorization")[0].decode() for r in exports(collector)} == {OWN_KEY}
            said = b"".join(r.head + r.body for r in exports(collector))
            assert KEY.encode() not in said and SECRET_TEXT.encode() not in said and b"spanId" in said
            assert OWN_KEY.encode() not in b"".join(r.head + r.body for r in there.requests)
            assert OWN_KEY not in "\n".join(proxy.lines) and not proxy.log("Traceback", 0)
            assert len(proxy.log("traces are not exported", 0)) < 4 * len(scripts) * workers
