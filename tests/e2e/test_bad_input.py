"""What nobody can understand goes on as it came: the provider's own error is the best, and ours is never a 500."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from proxy.bootstrap import settle
from tests.e2e.services import KEY, PATH, body, error, ours, plimsoll, sentence, talk
from tests.recorder import recording
from tests.serving import ask, dialling, get, post, run

DEEP = 100_000
HI = b'"messages":[{"role":"user","content":"Hi"}]'


def with_field(field: bytes) -> bytes:
    """A request with one field more."""
    return b'{"model":"gpt-4",' + field + b"," + HI + b"}"


def long_with(field: bytes) -> bytes:
    """A request that would be cut if it were understood, with one field more."""
    return b'{"model":"gpt-4",' + field + b',"messages":' + json.dumps(talk(400)).encode() + b"}"


NOT_UNDERSTOOD: dict[str, bytes] = {
    "nothing": b"",
    "blank": b"  ",
    "no json": b"model=gpt-4&messages=Hi",
    "half": b'{"model":"gpt-4","messages":[{"role":"us',
    "behind its end": b'{"model":"gpt-4",' + HI + b"}}",
    "two": b'{"model":"gpt-4",' + HI + b"}\n{}",
    "a list": b"[" + HI[11:] + b"]",
    "null": b"null",
    "a text": b'"gpt-4"',
    "a mark": b"\xef\xbb\xbf" + with_field(b'"n":1'),
    "utf-16": with_field(b'"n":1').decode().encode("utf-16"),
    "nan": long_with(b'"temperature":NaN'),
    "infinity": long_with(b'"temperature":-Infinity'),
    "no model": b"{" + HI + b"}",
    "no messages": b'{"model":"gpt-4"}',
    "a number for a model": b'{"model":4,' + HI + b"}",
    "null for a model": b'{"model":null,' + HI + b"}",
    "a text for messages": b'{"model":"gpt-4","messages":"Hi"}',
    "an object for messages": b'{"model":"gpt-4","messages":{"role":"user"}}',
    "null for messages": b'{"model":"gpt-4","messages":null}',
    "no message at all": b'{"model":"gpt-4","messages":[]}',
    "numbers for messages": b'{"model":"gpt-4","messages":[1,2]}',
    "null for a message": b'{"model":"gpt-4","messages":[null]}',
    "no role": b'{"model":"gpt-4","messages":[{"content":"Hi"}]}',
    "a number for a role": b'{"model":"gpt-4","messages":[{"role":1,"content":"Hi"}]}',
    "a text for calls": b'{"model":"gpt-4","messages":[{"role":"assistant","tool_calls":"x"}]}',
    "max_tokens many": long_with(b'"max_tokens":"many"'),
    "max_tokens 1.5": long_with(b'"max_tokens":1.5'),
    "max_tokens true": long_with(b'"max_tokens":true'),
    "max_tokens a list": long_with(b'"max_tokens":[5]'),
    "max_tokens of 5000 digits": long_with(b'"max_tokens":' + b"9" * 5_000),
    "max_tokens -1.5": long_with(b'"max_tokens":-1.5'),
    "max_tokens beyond all floats": long_with(b'"max_tokens":1e999'),
    "n 0": long_with(b'"n":0'),
    "n many": long_with(b'"n":"2"'),
    "n -3": long_with(b'"n":-3'),
    "stream yes": long_with(b'"stream":"yes"'),
    "deep lists": long_with(b'"metadata":' + b"[" * DEEP + b"]" * DEEP),
    "deep objects": long_with(b'"metadata":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "deep content": with_field(b'"n":1').replace(b'"Hi"', b"[" * DEEP + b"]" * DEEP),
    "deep and open": b'{"model":"gpt-4","messages":' + b"[" * DEEP,
    "nul": b"\0" * 100,
}

# Odd, but lawful JSON of the right types: it is measured and needs nothing.
ODD: dict[str, bytes] = {
    "no utf-8": with_field(b'"user":"\xff\xfe"').replace(b"Hi", b"\xc3\x28"),
    "a lone surrogate": with_field(b'"n":1').replace(b"Hi", rb"\ud800"),
    "surrogates the wrong way round": with_field(b'"n":1').replace(b"Hi", rb"\udc00\ud800"),
    "an integer of 5000 digits": with_field(b'"seed":' + b"9" * 5_000),
    "an integer of 5000 digits in the content": with_field(b'"n":1').replace(b'"Hi"', b"9" * 5_000),
    "a float beyond all floats": with_field(b'"temperature":1e999'),
    "empty content": with_field(b'"n":1').replace(b'"Hi"', b'""'),
    "null for content": with_field(b'"n":1').replace(b'"Hi"', b"null"),
    "no parts": with_field(b'"n":1').replace(b'"Hi"', b"[]"),
    "strange parts": with_field(b'"n":1').replace(b'"Hi"', b'[1,null,{"type":5},[[]],{"type":"text"}]'),
    "an unknown role": with_field(b'"n":1').replace(b"user", b"captain"),
    "an orphan result": b'{"model":"gpt-4","messages":[{"role":"tool","tool_call_id":"x","content":"y"}]}',
    "a limit of -1": with_field(b'"max_tokens":-1'),
    "a limit of 0": with_field(b'"max_completion_tokens":0'),
    "a limit of -1 beside another": with_field(b'"max_tokens":-1,"max_completion_tokens":5'),
    "a limit with a point": with_field(b'"max_tokens":100.0'),
    "null limits": with_field(b'"max_tokens":null,"n":null,"stream":null'),
    "tools of no kind": with_field(b'"tools":[1,{"type":"x"},{"type":"function","function":"f"}]'),
    "tools that are a text": with_field(b'"tools":"all","response_format":7,"tool_choice":[]'),
    "a reference to itself": with_field(
        b'"tools":[{"type":"function","function":{"name":"f","parameters":{"$ref":"#"}}}]'
    ),
    "thinking of no kind": with_field(b'"thinking":[1],"prediction":3'),
    "a model of no name": b'{"model":"",' + HI + b"}",
    "a model of a long name": b'{"model":"' + b"m" * 100_000 + b'",' + HI + b"}",
    "a model with a line break": b'{"model":"gpt-4\\nx-evil: 1\\u0000\\u001b[31m",' + HI + b"}",
    "blanks": with_field(b'"n":1').replace(b"Hi", b" " * 300_000 + b"x"),
    "one letter": with_field(b'"n":1').replace(b"gpt-4", b"gpt-4o").replace(b"Hi", b"a" * 200_000),
    "many small fields": b"{" + b"".join(b'"f%d":%d,' % (i, i) for i in range(20_000)) + with_field(b'"n":1')[1:],
}


@pytest.mark.parametrize("bad", NOT_UNDERSTOOD)
def test_what_cannot_be_understood_goes_upstream_untouched(bad: str) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(NOT_UNDERSTOOD[bad])
            assert (reply.status, reply.body, list(ours(reply))) == (200, b"{}", ["notice"])
            assert ours(reply)["notice"].startswith("the request was sent as it came, unmeasured: ")
            assert [r.body for r in up.requests] == [NOT_UNDERSTOOD[bad]]
            assert (await proxy.told()).result == "not_understood"

    run(check())


@pytest.mark.parametrize("odd", ODD)
def test_what_is_only_odd_goes_upstream_untouched(odd: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(ODD[odd])
            assert (reply.status, reply.body) == (200, b"{}")
            sent = [r.body for r in up.requests if r.method == b"POST"]
            assert sent == [ODD[odd]]
            assert (await proxy.told()).result == "passed"

    run(check())
    assert "a bug of ours" not in capfd.readouterr().err


STRANGE: dict[str, bytes] = {
    "a lone surrogate": rb'{"role":"user","content":"\ud800 %b"}',
    "no utf-8": b'{"role":"user","content":"\xc3\x28 %b"}',
    "null": b'{"role":"assistant","content":null,"x":"%b"}',
    "no content": b'{"role":"assistant","x":"%b"}',
    "a number": b'{"role":"user","content":' + b"9" * 5_000 + b',"x":"%b"}',
    "parts of no kind": b'{"role":"user","content":[1,null,{"type":"text","text":"%b"},{"type":"text","text":7},{}]}',
    "an unknown role": b'{"role":"captain","content":"%b"}',
    "an orphan": b'{"role":"tool","tool_call_id":"call_9","content":"%b"}',
    "a call that nobody answers": b'{"role":"assistant","content":"%b","tool_calls":[{"id":"a","function":{}}]}',
    "a call of no kind": b'{"role":"assistant","x":"%b","tool_calls":[{"id":"","function":{"name":"","arguments":7}}]}',
    "an old result": b'{"role":"function","name":"f","content":"%b"}',
    "nested": b'{"role":"user","content":"%b","x":' + b"[" * 900 + b"]" * 900 + b"}",
    "a picture": b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA%b"}}]}',
    "a broken picture": b'{"role":"user","content":[{"type":"image_url","image_url":"%b"}]}',
    "a file": b'{"role":"user","content":[{"type":"file","file":{"file_data":"data:x;base64,%b"}}]}',
    "sound": b'{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA%b","format":"wav"}}]}',
}


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("strange", STRANGE)
def test_odd_messages_do_not_keep_a_long_conversation_from_being_cut(
    strange: str, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = [json.dumps(message).encode() for message in talk(300)]
    odd = STRANGE[strange].replace(b"%b", sentence(0, 2_000).encode())
    messages.insert({"first": 0, "middle": 150, "last": len(messages)}[place], odd)
    sent = b'{"model":"gpt-4","messages":[' + b",".join(messages) + b"]}"

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent)
            outcome = await proxy.told()
            assert reply.status in (200, 400)
            if reply.status == 400:
                assert (error(reply)["code"], outcome.result) == ("context_length_exceeded", "unfit")
            else:
                assert outcome.result == "fitted" and len(up.requests[0].body) < len(sent)

    run(check())
    assert "a bug of ours" not in capfd.readouterr().err


@pytest.mark.parametrize("field", [b'"max_tokens":-1', b'"max_tokens":0', b'"max_completion_tokens": -1'])
def test_a_limit_that_means_none_does_not_keep_a_long_conversation_from_being_cut(field: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(long_with(field))
            sent = up.requests[0].body
            assert (reply.status, (await proxy.told()).result) == (200, "fitted")
            assert field.replace(b" ", b"") in sent and len(json.loads(sent)["messages"]) < 402
            assert "max-tokens" not in ours(reply)

    run(check())


def test_a_limit_with_a_point_is_lowered_where_it_does_not_fit_and_else_kept() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            assert ours(await proxy.chat(with_field(b'"max_tokens":8192.0')))["max-tokens"] == "8084"
            assert b'"max_tokens":8084,' in up.requests[0].body
            assert ours(await proxy.chat(with_field(b'"max_tokens":1e2')))["max-tokens"] == "100"
            assert up.requests[1].body == with_field(b'"max_tokens":1e2')

    run(check())


@pytest.mark.parametrize("field", [b'"max_tokens":1000000000000', b'"max_tokens":99999999999999999999', b'"n":100000'])
def test_a_limit_beyond_all_windows_is_lowered_or_left_and_never_an_error_of_ours(field: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            said = json.dumps(talk(4)).encode()
            reply = await proxy.chat(b'{"model":"gpt-4",' + field + b',"messages":' + said + b"}")
            assert reply.status in (200, 400) and reply.body
            if reply.status == 400:
                assert error(reply)["code"] == "context_length_exceeded"
            elif b"1000000000000" in field:
                assert json.loads(up.requests[0].body)["max_tokens"] < 8_192

    run(check())


@pytest.mark.parametrize("coding", ["zstd", "br", "gzip, gzip", "broken gzip", "half gzip", "gzip and more", "deflate"])
def test_a_body_packed_in_ways_that_we_cannot_read_goes_upstream_untouched(coding: str) -> None:
    plain = body(talk(400))
    packed = {
        "broken gzip": b"\x1f\x8b\x08\x00 this is none",
        "half gzip": gzip.compress(plain)[:-20],
        "gzip and more": gzip.compress(plain) + b"more",
        "deflate": zlib.compress(plain)[2:-4],
    }.get(coding, plain)
    name = coding.split(" ")[1] if coding.endswith(" gzip") and "," not in coding else coding.partition(" and")[0]

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(packed, b"content-encoding: " + name.encode())
            assert reply.status == 200
            assert [r.body for r in up.requests] == [packed]
            assert up.requests[0].header(b"content-encoding") == [name.encode()]
            assert (await proxy.told()).result == "not_understood"

    run(check())


def test_a_packed_bomb_is_passed_on_and_not_unpacked() -> None:
    bomb = gzip.compress(b'{"model":"gpt-4","messages":"' + b" " * 200_000_000 + b'"}')

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_MAX_BODY="1MiB") as proxy:
            async with answering(proxy.port) as health:
                reply = await proxy.chat(bomb, b"content-encoding: gzip")
            assert (reply.status, up.requests[0].body == bomb) == (200, True)
            assert health.slowest < 30

    run(check())


def test_a_body_over_our_limit_is_refused_however_it_comes() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_MAX_BODY="100kB") as proxy:
            sent = body(talk(2), "gpt-4o", user="x" * 100_000)
            told = await proxy.chat(sent)
            assert (told.status, error(told)["code"]) == (413, "body_too_large")
            assert told.header(b"x-should-retry") == [b"false"]
            async with dialling(proxy.port) as client:
                top = get(PATH, KEY, b"transfer-encoding: chunked", method=b"POST")
                await client.send(top, b"%x\r\n%b\r\n" % (len(sent), sent), b"0\r\n\r\n")
                assert (await client.reply()).status == 413
            assert up.requests == []
            assert (await ask(proxy.port, post(sent, KEY, target=b"/v1/files"))).status == 200  # no limit elsewhere
            assert [o.result for o in proxy.outcomes] == ["rejected", "rejected", "passed"]

    run(check())


# The event loop goes on.


@dataclass(slots=True)
class Health:
    """How long the slowest answer of /healthz took, in seconds, and how many there were."""

    slowest: float = 0.0
    answers: int = 0


@asynccontextmanager
async def answering(port: int) -> AsyncIterator[Health]:
    """Asks /healthz all the while."""
    health = Health()

    async def ask_on() -> None:
        async with dialling(port) as client:
            while True:
                began = time.perf_counter()
                await client.send(get(b"/healthz"))
                assert (await client.reply()).status == 200
                health.slowest = max(health.slowest, time.perf_counter() - began)
                health.answers += 1
                await asyncio.sleep(0.002)

    task = asyncio.create_task(ask_on())
    try:
        yield health
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() and health.answers


def huge_tools() -> list[object]:
    """Tools of some 5 MB."""
    said = [sentence(i, 400) for i in range(2_000)]
    return [
        {"type": "function", "function": {"name": f"f{i}", "description": text, "parameters": {}}}
        for i, text in enumerate(said)
    ]


def huge_schema() -> object:
    """A schema of some 5 MB."""
    choices = {"enum": [sentence(i, 40) for i in range(20_000)]}
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": choices}}


HUGE: dict[str, Callable[[], bytes]] = {
    "one message of 5 MB": lambda: body([{"role": "user", "content": sentence(0, 40) * 20_000}]),
    "one word of a megabyte": lambda: body([{"role": "user", "content": "a" * 1_000_000}], "gpt-4o"),
    "100,000 messages": lambda: body([{"role": "user", "content": sentence(i, 4)} for i in range(100_000)]),
    "20,000 messages": lambda: body([{"role": "user", "content": sentence(i, 4)} for i in range(20_000)]),
    "100,000 messages that fit": lambda: body([{"role": "user", "content": "Hi"}] * 100_000, "gemini-2.5-flash"),
    "tools of 5 MB": lambda: body(talk(2), tools=huge_tools()),
    "a schema of 5 MB": lambda: body(talk(300), response_format=huge_schema()),
    "a picture of 20 MB": lambda: body([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 20_000_000}}]}], "gpt-4o"),
    "packed": lambda: gzip.compress(body([{"role": "user", "content": sentence(i, 40)} for i in range(8_000)])),
}  # fmt: skip


@pytest.fixture
def settled() -> Iterator[None]:
    """The interpreter as the proxy is served in it."""
    before, turn = gc.get_threshold(), sys.getswitchinterval()
    settle()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    sys.setswitchinterval(turn)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("huge", HUGE)
def test_other_requests_go_on_while_a_huge_one_is_measured(huge: str) -> None:
    headers = (b"content-encoding: gzip",) if huge == "packed" else ()
    sent = HUGE[huge]()

    async def check() -> int:
        async with recording() as up, plimsoll(up.url) as proxy:
            for model in ("gpt-4o", "gpt-4"):
                await proxy.chat(body(talk(2), model))  # encodings are loaded
            async with answering(proxy.port) as health:
                before = health.answers
                reply = await proxy.chat(sent, *headers)
                answers = health.answers - before
            assert reply.status in (200, 400)
            expected = ("not_understood",) if huge.startswith("100,000") else ("fitted", "unfit", "passed")
            assert (await proxy.told(3)).result in expected  # what is out of all proportion is forwarded as it came
            return answers

    assert run(check(), 120) >= 3, "they come between its pieces"
