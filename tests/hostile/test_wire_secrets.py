"""The list of the wire's dangers, 42 to 47: secrets, tenants, and what a client must not reach."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.services import sentence, talk
from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, HELLO, eventually, friendly, ok, refused, running, upstream
from tests.hostile.raw import Wire, get, post, tried
from tests.recorder import EVENTS, Peer, Request, Script, answer, chunk, head
from tests.redis_server import redis_server

PROMPT = "canary-prompt-1618"
KEYS = ("sk-canary-client-2718", "sk-canary-ours-3141", "canary-secret-1414", "canary-password-1732")
CLIENT = {"authorization": f"Bearer {KEYS[0]}"}
SETTINGS = {"PLIMSOLL_API_KEY": KEYS[1], "PLIMSOLL_SECRET": KEYS[2], "PLIMSOLL_READ_TIMEOUT": "2"}
LONG = {"model": "gpt-4", "messages": [{"role": "user", "content": f"{PROMPT} {sentence(i)}"} for i in range(400)]}


def large(first: int = 0) -> dict[str, object]:
    """A request with four long messages. Another `first` gives other messages, whose counts are not known yet."""
    said = [f"{PROMPT} {sentence(i, 3_000)}" for i in range(first, first + 4)]
    return {"model": "gpt-4", "messages": [{"role": "user", "content": text} for text in said]}


SHORT = {"model": "gpt-4o", "messages": LONG["messages"][:1]}
ECHO = b'{"error":{"message":"context length exceeded by canary-prompt-1618","code":"context_length_exceeded"}}'
JSON = b"content-type: application/json"


def saying(*pieces: bytes, close: bool = False) -> Script:
    """An upstream that says just this."""

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(*pieces)
        if close:
            peer.close()

    return script


async def silent(request: Request, peer: Peer) -> None:
    """An upstream that says nothing."""
    await peer.gone()


WORDS = f"x-plimsoll-mode: {PROMPT}".encode()
DELTA = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"canary-prompt-1618"}}]}\n\n')
FAILURES: dict[str, tuple[Script, bytes]] = {
    "nothing": (friendly, post(json.dumps(SHORT).encode())),
    "a cut": (friendly, post(json.dumps(LONG).encode())),
    "no fit": (friendly, post(json.dumps({**SHORT, "tools": [{"type": "function", "x": PROMPT * 90_000}]}).encode())),
    "half a body": (friendly, post(json.dumps(LONG).encode()[:-3])),
    "strict": (friendly, post(json.dumps(LONG).encode()[:-3], b"x-plimsoll-mode: strict")),
    "wrong types": (friendly, post(json.dumps({**LONG, "max_tokens": PROMPT, "n": [PROMPT]}).encode())),
    "broken gzip": (friendly, post(gzip.compress(json.dumps(LONG).encode())[:-9], b"content-encoding: gzip")),
    "a mode": (friendly, post(json.dumps(SHORT).encode(), WORDS)),
    "a ladder": (friendly, post(json.dumps(SHORT).encode(), WORDS.replace(b"mode", b"ladder"))),
    "a window": (friendly, post(json.dumps(SHORT).encode(), WORDS.replace(b"mode", b"window"))),
    "a lorebook": (friendly, post(json.dumps(LONG).encode(), WORDS.replace(b"mode", b"lorebook"))),
    "a pin": (friendly, post(json.dumps(LONG).encode(), WORDS.replace(b"mode", b"pin"))),
    "inspecting": (friendly, post(json.dumps(LONG).encode()[:-3], target=b"/inspect" + CHAT.encode())),
    "another path": (friendly, post(b"{}", target=b"/v1/x?api_key=" + KEYS[0].encode())),
    "no http": (friendly, b"GET /" + PROMPT.encode() + b" HTTP/1.1\r\nbad header\r\n\r\n"),
    "a long head": (friendly, get(b"/v1/x", b"x-a: " + PROMPT.encode() * 5_000)),
    "a refusal": (saying(answer(ECHO, b"400 No", (JSON,))), post(json.dumps(LONG).encode())),
    "a stream's refusal": (
        saying(EVENTS, chunk(b"data: " + ECHO + b"\n\n"), chunk(b"")),
        post(json.dumps({**LONG, "stream": True}).encode()),
    ),
    "a rate limit": (saying(answer(ECHO, b"429 No", (JSON,))), post(json.dumps(LONG).encode())),
    "a server's error": (saying(answer(ECHO, b"500 No", (JSON,))), post(json.dumps(LONG).encode())),
    "an upstream that closes": (saying(close=True), post(json.dumps(LONG).encode())),
    "no http upstream": (saying(PROMPT.encode() + b"\r\n\r\n", close=True), post(json.dumps(LONG).encode())),
    "a bad header": (saying(head(b"200 OK", PROMPT.encode()), close=True), post(json.dumps(LONG).encode())),
    "silence": (silent, post(json.dumps(SHORT).encode())),
    "a broken stream": (saying(EVENTS, DELTA, close=True), post(json.dumps({**SHORT, "stream": True}).encode())),
    "a short answer": (
        saying(head(b"200 OK", JSON, b"content-length: 999") + PROMPT.encode(), close=True),
        post(json.dumps(SHORT).encode()),
    ),
    "bad usage": (saying(answer(b'{"usage":"canary-prompt-1618"}')), post(json.dumps(SHORT).encode())),
}


def test_D42_no_failure_tells_a_key_or_a_prompt(place: Place) -> None:
    for name, (script, raw) in FAILURES.items():
        place.scripted(script)
        start, _, rest = raw.partition(b"\r\n")
        key = b"\r\nauthorization: Bearer " + KEYS[0].encode() + b"\r\n"
        with Wire(place.proxy.port) as wire:
            wire.send(start + key + rest)
            try:
                got = wire.reply()
            except EOFError:
                continue
        assert not any(key.encode() in got.body for key in KEYS), name
        if "x-should-retry" in got.headers or got.status == 502:
            assert PROMPT.encode() not in got.body, f"{name}: an error of our own quotes nobody"
        assert not any(PROMPT in value for value in got.headers.values()), name
    place.scripted()
    with Wire(place.proxy.port) as wire:  # and a client that leaves in the middle
        wire.send(post(json.dumps(LONG).encode())[:-500])
    eventually(lambda: place.proxy.metric("plimsoll_requests_in_flight") == 0, 30)
    told = "\n".join(place.proxy.lines) + place.ask(path="/metrics").body.decode()
    assert '"result":"fitted"' in told, "the log is there"
    for canary in (PROMPT, *KEYS):
        assert canary not in told


def test_D42_redis_is_told_no_key_and_no_prompt(workers: int) -> None:
    with redis_server() as server, upstream() as there:
        url = server.url.replace("redis://", f"redis://:{KEYS[3]}@")
        with running(there.url, workers=workers, admin=False, **SETTINGS, PLIMSOLL_REDIS=server.url) as proxy:
            asked = count(0, 4)

            def written() -> bool:  # what is counted before the workers agree on a secret is not written
                assert proxy.ask(large(next(asked)), headers=CLIENT).status == 200
                return len(server.names()) > 2

            eventually(written, 60)
            dump = server.cli("--scan") + b"".join(server.cli("GET", name) for name in server.names()[:500])
            assert not any(canary.encode() in dump for canary in (PROMPT, *KEYS))
            lines = list(proxy.lines)
        with running(there.url, workers=workers, admin=False, **SETTINGS, PLIMSOLL_REDIS=url) as proxy:
            assert proxy.ask(LONG, headers=CLIENT).status == 200
            lines += proxy.lines
        assert not any(canary in "\n".join(lines) for canary in (PROMPT, *KEYS))


def summarising(summaries: list[str]) -> Script:
    """An upstream whose summaries are noted by who asked for them."""

    async def script(request: Request, peer: Peer) -> None:
        if b'"summariser"' in request.body:
            summaries.append(b",".join(request.header(b"authorization")).decode())
            await peer.send(ok(text="They loaded ballast and left at high tide."))
        else:
            await friendly(request, peer)

    return script


def test_D43_tenants_share_no_summary_and_redis_shows_no_content(workers: int) -> None:
    summaries: list[str] = []
    talked = {"model": "gpt-4", "messages": talk(22, 500)}
    with redis_server() as server, upstream(summarising(summaries)) as there:
        settings = {"PLIMSOLL_SECRET": "s" * 32, "PLIMSOLL_SUMMARY_MODEL": "summariser", "PLIMSOLL_REDIS": server.url}
        with running(there.url, workers=workers, admin=False, **settings) as proxy:
            for key in ("sk-one", "sk-two"):
                for _ in range(3):
                    assert proxy.ask(talked, headers={"authorization": f"Bearer {key}"}).status == 200
            assert {"Bearer sk-one", "Bearer sk-two"} == set(summaries), "each tenant's own key asked for its own"
            more = count(0)

            def written() -> bool:  # while Redis is slow, nothing is written: then another conversation is summarised
                number = next(more)
                other = [{**message, "content": f"{number}: {message['content']}"} for message in talk(22, 500)]
                said = {"model": "gpt-4", "messages": other}
                assert proxy.ask(said, headers={"authorization": "Bearer sk-one"}).status == 200
                return bool(server.names())

            eventually(written, 60)
            for name in server.names():
                assert re.fullmatch(r"plimsoll:[\w{}:.-]+", name)
            dump = b"".join(server.cli("GET", name) for name in server.names())
            assert b"ballast" not in dump and b"Entry" not in dump and b"sk-one" not in dump


def test_D44_fields_of_a_body_never_change_where_it_goes(place: Place) -> None:
    with upstream() as evil:
        there = f"http://127.0.0.1:{evil.port}/v1"
        fields = {"api_base": there, "base_url": there, "extra_headers": {"host": there}, "api_key": "x", "url": there}
        body = json.dumps({**HELLO, **fields}).encode()
        headers = {
            "x-api-base": there,
            "x-forwarded-host": there,
            "openai-base-url": there,
            "forwarded": f"host={there}",
        }
        assert place.ask(body, headers=headers).status == 200
        assert [r.body for r in place.seen()] == [body]
        assert evil.connections == 0


def series(place: Place) -> int:
    """How many samples the metrics have."""
    return len(place.ask(path="/metrics").body.splitlines())


def test_D45_clients_cannot_grow_the_metrics(place: Place) -> None:
    chance = random.Random(45)
    for name in ("gpt-4", "gpt-4o", "gpt-4o-mini", "nobody"):
        place.ask({**HELLO, "model": name})
    place.ask(path="/v1/0", method="GET")  # the first one that is passed through begins its series
    labels = ('"chat",model="gpt-4"', '"chat",model="gpt-4o"', '"chat",model="gpt-4o-mini"', '"passthrough",model=""')
    begun = [f"plimsoll_requests_total{{endpoint={label},result=".encode() for label in labels]
    # Not before the first encoding is loaded, and each worker has published what it counted.
    eventually(lambda: all(one in place.ask(path="/metrics").body for one in begun))
    before = series(place)
    for number in range(300):
        name = f"{chance.choice(('gpt-4o', 'my', 'x/y', 'claude-3'))}-{chance.random()}\n{number}"
        assert place.ask({**HELLO, "model": name}, path=f"{CHAT}?{number}" if number % 3 else CHAT).status == 200
        place.ask(path=f"/v1/{number}", method=("GET", "DELETE", "X")[number % 3])
    eventually(lambda: place.proxy.metric("plimsoll_requests_in_flight") == 0)
    assert series(place) < before + 50


@pytest.fixture(scope="module")
def guarded(workers: int) -> Iterator[Place]:
    """A proxy with an admin port of its own."""
    with upstream() as there, running(there.url, workers=workers, admin=True) as proxy:
        yield Place(proxy, there)


def test_D46_the_admin_port_is_not_reached_through_the_data_port(guarded: Place) -> None:
    admin = b"127.0.0.1:%d" % guarded.proxy.admin_port
    assert guarded.ask(path="/metrics", admin=True).body.startswith(b"# HELP")
    for target in (
        b"/metrics",
        b"/v1/metrics",
        b"/v1/../metrics",
        b"/%6detrics",
        b"//metrics",
        b"/metrics/",
        b"http://%b/metrics" % admin,
        b"//%b/metrics" % admin,
        b"/readyz",
        b"/inspect/v1/chat/completions",
    ):
        for host in (b"proxy", admin):
            for method in (b"GET", b"POST"):
                raw = get(target, b"content-length: 0", method=method).replace(b"host: localhost", b"host: " + host)
                got = tried(guarded.proxy.port, raw)
                assert got is None or not (b"plimsoll_" in got.body or b"ready" in got.body), target


def test_D47_what_a_control_header_asks_for_concerns_its_own_request(place: Place) -> None:
    talked = json.dumps({"model": "gpt-4o", "messages": talk(120)}).encode()
    controls = {
        "x-plimsoll-mode": "fit",
        "x-plimsoll-ladder": "chat",
        "x-plimsoll-window": "2000",
        "x-plimsoll-pin": "1",
        "X-Plimsoll-Steps": "forged",
        "x-plimsoll-anything": "1",
    }
    for _ in range(4):
        assert place.ask(talked, headers=controls).status == 200
        assert place.ask(talked).status == 200
    cut, whole = place.there.requests[0::2], place.there.requests[1::2]
    assert all(len(r.body) < len(talked) for r in cut) and all(r.body == talked for r in whole)
    assert not any(name.lower().startswith(b"x-plimsoll") for r in place.there.requests for name, _ in r.headers)
    told = place.ask(talked, path="/v1/other", headers=controls)
    assert told.status == 200
    assert not any(n.lower().startswith(b"x-plimsoll") for n, _ in place.there.requests[-1].headers)


def test_D47_a_refusal_of_one_is_no_window_of_another(place: Place) -> None:
    talked = json.dumps({"model": "gpt-4o", "messages": talk(120)}).encode()

    async def small_for_one(request: Request, peer: Peer) -> None:
        if request.header(b"authorization") == [b"Bearer sk-small"] and len(request.body) > 20_000:
            text = "This model's maximum context length is 4000 tokens. However, your messages resulted in 6000 tokens."
            await peer.send(refused(text))
        else:
            await friendly(request, peer)

    place.scripted(small_for_one)
    assert place.ask(talked, headers={"authorization": "Bearer sk-small"}).status == 200
    place.there.requests.clear()
    assert place.ask(talked, headers={"authorization": "Bearer sk-large"}).status == 200
    assert [r.body for r in place.there.requests if r.method == b"POST"] == [talked]
