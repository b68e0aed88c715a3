"""Generated requests that are not ordinary: odd bodies, control headers, refusals, streams, other paths, raw HTTP."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.identity.conversations import (
    CHAT,
    MODELS,
    Case,
    Maker,
    Messages,
    agent,
    chat,
    functions,
    images,
    long,
    plain,
    sized,
    tools,
    written,
)
from tests.bench.identity.replies import DONE, Reply, completion, event, events, in_pieces, streamed, usage
from tests.bench.identity.texts import prose, question
from tests.fuzz import bodies
from tests.recorder import answer, chunk, head

REFUSALS = Path(__file__).parents[2] / "refusals"
MOST_TOKENS = 20_000  # of a refused request, whatever window the refusal names


def odd(dice: random.Random, number: int) -> Iterator[Case]:
    """Invalid and unusual bodies."""
    plain = b'{"model":"gpt-4","messages":[{"role":"user","content":"%b"}]%b}'
    long = json.dumps(prose(dice, 400)).encode()[1:-1]
    kept = (
        *(b"", b"{}", b"[]", b"null", b"nope", b"\xff\xfe{}", b'{"model":"gpt-4"}', b'{"messages":[]}', b"[" * 3_000),
        *(
            plain % (long, more)
            for more in (b',"n":100000', b',"max_tokens":"7"', b',"max_tokens":null', b',"a":1,"a":2')
        ),
        *(
            plain % (long, b',"max_tokens":%b' % n)
            for n in (b"1e3", b"-1", b"99999999999999999999", b"1.5", b"true", b"[]")
        ),
        *(plain % (long, b',"max_tokens":9000,"max_completion_tokens":%d' % n) for n in (5, 9_000, 20_000)),
        *(plain % (long, b',"stream":%b' % value) for value in (b"1", b'"yes"', b"null", b"false")),
        *(plain % (text, b"") for text in (b"\\ud800", b"a\\udc00b", b"\\ud83d\\ude00", b"\xed\xa0\x80", b"\\u0000")),
        *(plain % (text * 4_000, b"") for text in (b"<|endoftext|>", b"\\n", b"\xf0\x9f\x9a\xa2", b"\\u00e4", b"a ")),
        plain % (b"hi", b',"messages":[{"role":"user","content":"again"}]'),
        plain.replace(b"gpt-4", b"\\u0067pt-4") % (long * 20, b""),
        plain.replace(b'"gpt-4"', b"5") % (long, b""),
        plain.replace(b"gpt-4", b"") % (long, b""),
        plain.replace(b"gpt-4", b"x" * 5_000) % (long, b""),
        b"  " + plain % (long * 20, b"") + b"\n\n",
        b"\xef\xbb\xbf" + plain % (long, b""),
        (plain % (long * 20, b""))[:-1],
        plain % (long * 20, b"") + b"x",
    )
    at = 3 * number % len(kept)
    for body in [*kept, *kept][at : at + 3]:
        yield Case(body, inspected=dice.random() < 0.5)
    for _ in range(3):
        changes = [(dice.randrange(99), dice.randrange(9_999), dice.randrange(9_999)) for _ in range(3)]
        scars = [(dice.randrange(9_999), dice.randrange(-3, 4))] if dice.random() < 0.3 else []
        window = (("x-plimsoll-window", str(dice.choice((900, 2_600)))),) if dice.random() < 0.5 else ()
        valid = bodies.chat(dice.randrange(2**32))
        yield Case(bodies.mutated(valid, changes, scars), headers=window, inspected=dice.random() < 0.5)


def packed(dice: random.Random, number: int) -> Iterator[Case]:
    """Bodies with a content-encoding."""
    body = next(chat(dice, number)).body or b""
    cases: tuple[tuple[str, bytes], ...] = (
        ("gzip", gzip.compress(body, mtime=0)),
        ("deflate", zlib.compress(body)),
        ("identity", body),
        ("x-gzip", gzip.compress(body, mtime=0)),
        ("gzip", gzip.compress(body, mtime=0)[:-9]),
        ("gzip", body),
        ("br", b"\x0b\x02\x80hello\x03"),
        ("gzip, gzip", gzip.compress(gzip.compress(body, mtime=0), mtime=0)),
    )
    for place in range(3):
        coding, data = cases[(3 * number + place) % len(cases)]
        headers = (("content-encoding", coding), ("content-digest", "sha-256=:x:"), ("x-plimsoll-window", "4000"))
        yield Case(data, headers=headers, inspected=True)


def controls(dice: random.Random, number: int) -> Iterator[Case]:
    """Control headers, and pins in messages."""
    asked = (
        *(("x-plimsoll-mode", value) for value in ("off", "observe", "fit", "strict", "sideways")),
        *(("x-plimsoll-ladder", value) for value in ("chat", "agent", "lossless", "economy", "rag", "refuse", "none")),
        *(("x-plimsoll-window", value) for value in ("1200", "400", "1", "0", "-1", "x", "999999", "99999999999")),
        *(("x-plimsoll-pin", value) for value in ("0", "2,5", "3,99", "a", "", "-1")),
        *(("x-plimsoll-lorebook", value) for value in ("harbour", "world,harbour", "nothing", "")),
        ("x-plimsoll-unknown", "1"),
    )
    said: Messages = [{"role": "user", "content": prose(dice, 80)} for _ in range(dice.choice((4, 30)))]
    if number % 2:
        said[dice.randrange(len(said))]["plimsoll"] = {"pin": True}
        said[0]["plimsoll"] = dice.choice(({"pin": False}, {}, 5, {"pin": "yes"}, {"pin": True, "a": 1}))
    said.append({"role": "user", "content": question(dice)})
    body = written(dice, {"model": MODELS[number % len(MODELS)], "messages": said, "max_tokens": 300})
    for place in range(4):
        chosen = [asked[(4 * number + place) % len(asked)], ("x-plimsoll-window", "3000")]
        more = chosen if chosen[0][0] != chosen[1][0] else chosen[:1]
        yield Case(body, headers=tuple(more), inspected=True)
    yield Case(body, path=CHAT + "?x-plimsoll-window=2000&api-version=2024-06-01", headers=(("api-key", "k"),))


def recorded_refusals() -> list[dict[str, Any]]:
    """Recorded refusals of providers, and errors that only resemble them."""
    return [row for path in sorted(REFUSALS.glob("*.json")) for row in json.loads(path.read_text())]


ROWS = recorded_refusals()


def refused(dice: random.Random, number: int) -> Iterator[Case]:
    """Requests that the upstream refuses one to three times; the next turn; the same request of another caller."""
    yield next(_refused(dice, 2 * number))
    yield from _refused(dice, 2 * number + 1)


def _refused(dice: random.Random, number: int) -> Iterator[Case]:
    row = ROWS[number * 11 % len(ROWS)]  # 11 and the number of rows are coprime: every row is used
    figures = row["expect"] or {}
    tokens = figures.get("prompt") or int(1.25 * (figures.get("limit") or 6_000))
    said = sized(dice, min(tokens, MOST_TOKENS))
    stream = bool(row.get("event")) or dice.random() < 0.15
    model = dice.choice((f"acme/harbour-{number}", f"acme/harbour-{number}", *MODELS))
    body = {"model": model, "messages": said} | ({"stream": True} if stream else {})
    if figures.get("completion"):
        body["max_tokens"] = figures["completion"]
    times = dice.choice((1, 1, 1, 2, 3))
    yield Case(written(dice, body), replies=(refusal(row, stream),) * times, inspected=True)
    body["messages"] = [*said, {"role": "assistant", "content": prose(dice, 60)}, {"role": "user", "content": "And?"}]
    yield Case(written(dice, body), inspected=True)
    if number % 3 == 0:
        yield Case(written(dice, body), headers=(("authorization", "Bearer sk-another"),))
    if number % 5 == 0:
        yield Case(path=f"/learned?model={model}", method="GET", headers=(("x-plimsoll-admin", "1"),))
    if number % 15 == 0:
        forget = json.dumps({"model": model}).encode()
        yield Case(forget, path="/forget", headers=(("x-plimsoll-admin", "1"),))
        yield Case(written(dice, body))


def refusal(row: Mapping[str, Any], stream: bool) -> Reply:
    """A recorded refusal as an HTTP answer."""
    body, status = row["body"].encode(), int(row["status"])
    if row.get("event") or (status == 200 and stream):
        data = body if body.startswith((b"data:", b"event:")) else b"data: " + body
        return in_pieces([data + b"\n\n", DONE])
    kind = b"content-type: application/json" if body.startswith((b"{", b"[")) else b"content-type: text/plain"
    return Reply((answer(body, b"%d Refused" % status if status != 200 else b"200 OK", (kind,)),))


def streams(dice: random.Random, number: int) -> Iterator[Case]:
    """Streams: complete, broken off, with errors, empty."""
    short = dice.random() < 0.5
    said = sized(dice, 300 if short else 7_000)
    body = {"model": MODELS[(5 * number) % len(MODELS)], "stream": True, "messages": said}
    if number % 3 == 0:
        body["stream_options"] = {"include_usage": True}
    raw = written(dice, body)
    usual = events("All cranes are in order, thank you.", usage(raw, number))
    failed = event({"error": {"message": "The server had an error.", "type": "server_error", "code": None}})
    long = event(
        {"error": {"message": "prompt is too long: 9000 tokens > 4000 maximum", "type": "invalid", "code": 400}}
    )
    whole = b"".join([*usual, DONE])
    cases = (
        streamed("word " * 40, usage(raw, number), pieces=9),
        in_pieces([*usual, DONE], 1),
        in_pieces([whole[at : at + 7] for at in range(0, len(whole), 7)], 6),
        in_pieces([*usual[:3]], 2, ends=False),
        in_pieces([*usual[:4]], 2),
        in_pieces([]),
        in_pieces([DONE]),
        in_pieces([], ends=False),
        in_pieces([b": keep-alive\n\n", b": keep-alive\n\n", *usual, DONE], 4),
        in_pieces([part.replace(b"\n", b"\r\n") for part in (*usual, DONE)], 2),
        in_pieces([failed]),
        in_pieces([*usual[:3], failed, DONE], 3),
        in_pieces([long]),
        in_pieces([usual[0], long, DONE], 2),
        in_pieces([*usual[:3], long, DONE], 3),
        in_pieces([event({"choices": [], "usage": usage(raw, 1)}), DONE]),
        in_pieces([b"event: error\n" + failed, DONE]),
        in_pieces([b"data:" + part[6:] for part in usual] + [DONE], 2),
        Reply((completed(gzip.compress(whole, mtime=0), b"content-encoding: gzip"),)),
        Reply((completed(whole),)),
        Reply((answer(completion("Not a stream.", usage(raw, 2))),)),
    )
    for place in range(2):
        empty = Reply((answer(b'{"error":{"message":"prompt is too long: 9000 tokens > 4000 maximum"}}', b"400 No"),))
        reply = cases[(2 * number + place) % len(cases)]
        yield Case(raw, replies=(reply, empty) if number % 2 else (reply,))


def completed(body: bytes, *more: bytes) -> bytes:
    """Events as one body with a length."""
    return answer(body, headers=(b"content-type: text/event-stream", *more))


def answers(dice: random.Random, number: int) -> Iterator[Case]:
    """Unusual answers to plain requests."""
    said = sized(dice, dice.choice((200, 9_000)))
    raw = written(dice, {"model": MODELS[(11 * number) % len(MODELS)], "messages": said, "max_tokens": 200})
    error = b'{"error":{"message":"Slow down.","type":"requests","param":null,"code":"rate_limit_exceeded"}}'
    whole = completion("All is well.", usage(raw, number))
    plain = (b"content-type: application/json",)
    cut = usage(raw, number) | {"prompt_tokens": 800}
    cases = (
        Reply((answer(error, b"429 Too Many Requests", (*plain, b"retry-after: 7", b"x-ratelimit-limit-tokens: 9")),)),
        Reply((answer(error.replace(b"Slow", b"Sit"), b"500 Internal Server Error", plain),)),
        Reply((answer(b"<html>502</html>", b"502 Bad Gateway", (b"content-type: text/html",)),)),
        Reply((answer(b'{"error":"no"}', b"401 Unauthorized", plain),)),
        Reply((answer(b"", b"403 Forbidden", ()),)),
        Reply((answer(b"", b"404 Not Found", plain),)),
        Reply((answer(b"Request Entity Too Large", b"413 Payload Too Large", (b"content-type: text/plain",)),)),
        Reply((head(b"204 No Content"),)),
        Reply((answer(b"", b"307 Temporary Redirect", (b"location: https://example.org/v1/chat/completions",)),)),
        Reply((head(b"103 Early Hints", b"link: </a>") + answer(whole),)),
        Reply((head(b"200 OK", *plain, b"transfer-encoding: chunked") + chunk(whole) + chunk(b""),)),
        Reply((head(b"200 OK", *plain, b"connection: close") + whole,), breaks=True),
        Reply((head(b"200 OK", *plain, b"content-length: 900") + whole[:99],), breaks=True),
        Reply((answer(gzip.compress(whole, mtime=0), headers=(*plain, b"content-encoding: gzip")),)),
        Reply((answer(zlib.compress(whole), headers=(*plain, b"content-encoding: deflate")),)),
        Reply((answer(b"\x8b\x02", b"400 Bad Request", (*plain, b"content-encoding: br")),)),
        Reply((answer(whole, headers=(*plain, b"set-cookie: a=1", b"set-cookie: b=2", b"x-plimsoll-fake: 1")),)),
        Reply((answer(whole, headers=(b"Content-Type: application/json; charset=utf-8", b"X-Request-ID: req-Ab")),)),
        Reply((answer(completion("x" * 9_000, usage(raw, 3))),)),
        Reply((answer(completion("cut without a word", cut)),)),
        Reply((answer(completion("", usage(raw, 1), finish_reason="length")),)),
        Reply((answer(completion("", None, finish_reason="model_context_window_exceeded")),)),
        Reply((answer(b'{"choices":[],"usage":{"input_tokens":5,"output_tokens":1}}'),)),
        Reply((answer(b'{"choices":[],"usage":{"prompt_tokens":"5"}}'),)),
        Reply((answer(b"[]"),)),
        Reply((answer(b"not json at all", headers=plain),)),
        Reply((b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",), breaks=True),
        Reply((b"nonsense\r\n\r\n",), breaks=True),
    )
    for place in range(2):
        yield Case(raw, replies=(cases[(2 * number + place) % len(cases)],), inspected=place == 0)


def paths(dice: random.Random, number: int) -> Iterator[Case]:
    """Other endpoints and methods, and the proxy's own paths."""
    body = json.dumps({"model": "gpt-4o", "input": prose(dice, 120)}).encode()
    small = written(dice, {"model": "gpt-4o", "messages": [{"role": "user", "content": prose(dice, 50)}]})
    form = (("content-type", "multipart/form-data; boundary=b"),)
    admin = (("x-plimsoll-admin", "1"),)
    posted = (
        *(("/v1/responses", body), ("/v1/messages", small), ("/v1/messages/count_tokens", small)),
        *(("/v1/completions", body), ("/v1/embeddings", body), ("/v1/moderations", body), ("/api/chat", small)),
        *(("/openai/deployments/gpt-4o/chat/completions?api-version=2024-06-01", small), ("/v1/batches", b"{}")),
        *(
            ("/v1/unknown/thing", b"\x00\xff"),
            ("/", b""),
            ("/v1/chat/completions/", small),
            ("/chat/completions", small),
        ),
        *(("//v1//chat/completions", small), ("/v1/chat/completions/?x=1", small), ("/v1/chat%2Fcompletions", small)),
        *(("/v1/../v1/chat/completions", small), ("/V1/chat/completions", small), ("/metrics", b""), ("/readyz", b"")),
        *(("/inspect/v1/chat/completions/", small), ("/inspect/v1/responses", body), ("/inspect", b"{}")),
        *(("/forget", b'{"model":"gpt-4o"}'), ("/learned", b"{}")),
    )
    others = (
        *(("GET", "/v1/models"), ("GET", "/v1/models/gpt-4o"), ("HEAD", "/v1/models"), ("OPTIONS", "/v1/models")),
        *(("GET", CHAT), ("HEAD", CHAT), ("DELETE", CHAT + "/id"), ("OPTIONS", CHAT), ("GET", "/healthz")),
        *(("GET", "/readyz"), ("HEAD", "/healthz"), ("GET", "/healthz/"), ("GET", "//readyz"), ("DELETE", "/metrics")),
        *(("GET", "/inspect"), ("GET", "/inspect/v1/chat/completions"), ("GET", "/learned?model=gpt-4o")),
        *(("GET", "/forget"), ("PROPFIND", "/v1/files"), ("GET", "/favicon.ico"), ("GET", "/v1/files?after=a%20b&x=+")),
    )
    asks = [Case(data, path=path) for path, data in posted]
    asks += [Case(method=method, path=path) for method, path in others]
    asks += [
        Case(b"--b\r\ncontent-disposition: form-data; name=a\r\n\r\n1\r\n--b--\r\n", path="/v1/files", headers=form),
        Case(dice.randbytes(200_000), path="/v1/audio/transcriptions", headers=form),
        Case(body, method="PUT", path="/v1/files/1", headers=(("transfer-coding", "x"), ("te", "trailers"))),
        Case(b"{}", method="PATCH", path="/v1/x", headers=(("X-Mixed-Case", "A"), ("cookie", "a=1; b=2"))),
        Case(method="GET", path="/learned", headers=admin),
        Case(method="GET", path="/learned?model=gpt-4o&model=x", headers=admin),
        Case(method="GET", path="/learned?model=gpt-4o", headers=(*admin, ("origin", "https://example.org"))),
        Case(b"nope", path="/forget", headers=admin),
        Case(small, path="/chat/completions", keyless=True, inspected=True),
        Case(body, path="/v1/responses", keyless=True, replies=(streamed("event " * 9),)),
    ]
    at = 5 * number % len(asks)
    yield from [*asks, *asks][at : at + 5]


def wires(dice: random.Random, number: int) -> Iterator[Case]:
    """Raw connections: invalid and rare HTTP/1.1."""
    small = b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi %d"}]}' % number
    post = b"POST /v1/chat/completions HTTP/1.1\r\nhost: harbour\r\nconnection: close\r\n"
    length = b"content-length: %d\r\n\r\n" % len(small)
    parts = b"".join(chunk(small[at : at + 9]) for at in range(0, len(small), 9))
    cases = (
        post + length + small,
        post + b"transfer-encoding: chunked\r\n\r\n" + parts + chunk(b""),
        post + b"transfer-encoding: chunked\r\n\r\n" + parts + b"0\r\nx-trailer: 1\r\n\r\n",
        post + b"expect: 100-continue\r\n" + length + small,
        post.replace(b"1.1", b"1.0") + length + small,
        b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n",
        b"GET http://harbour/v1/models HTTP/1.1\r\nhost: harbour\r\nconnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        post + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        post + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        post + b"content-length: -5\r\n\r\n",
        post + b"transfer-encoding: gzip\r\n\r\n",
        post + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        post + b"bad header\r\n\r\n",
        post + b"a: " + b"x" * 70_000 + b"\r\n" + length + small,
        post + b"x-many: \xc3\xa4\r\n" * 50 + length + small,
        post + b"authorization: Bearer one\r\nauthorization: Bearer two\r\n" + length + small,
    )
    yield Case(wire=cases[number % len(cases)])


KINDS: Mapping[str, Maker] = {
    made.__name__: made
    for made in (
        *(chat, agent, tools, functions, images, odd, packed, controls, refused, streams, answers, paths, wires),
        *(long, plain),
    )
}
