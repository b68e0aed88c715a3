"""Usage as the client's own meter: what an answer reports as the prompt of a request that was cut, on every API."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.e2e.services import KEY, Running, body, error, ours, plimsoll, talk
from tests.recorder import Peer, Request, Script, answer, chunk, head, recording
from tests.serving import Reply, ask, post, run

SMALL, ASKED = b"x-plimsoll-window: 3000", b"x-plimsoll-usage: asked"
SAID = talk(100)
LINES = b"content-type: application/x-ndjson"
USAGE = b'{"prompt_tokens": %d,"completion_tokens":7, "prompt_tokens_details":{"cached_tokens":90},"total_tokens":%d}'
RESPONSE = (
    b'{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"type":"message"}],"tools":'
    b'[{"usage":{"input_tokens":100}}],"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":4},'
    b'"output_tokens":5,"total_tokens":%d}, "store":true}'
)
MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":'
    b'{"usage":{"input_tokens":100}}}],"stop_reason":"end_turn","usage":{"input_tokens":%d,'
    b'"cache_read_input_tokens":30,"cache_creation_input_tokens":1,"output_tokens":4}}'
)


class Case(NamedTuple):
    """An API: a path, a body that is too long, and answers with the prompt's tokens, and then their sum with what comes
    to them, left out."""

    path: bytes
    sent: bytes
    answer: bytes
    kind: bytes
    figures: tuple[int, ...]


def _plain(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return messages[1:]


CHAT = body(SAID, "gpt-4o")
ANSWERED = b'{"id":"c","object":"%b","choices":[{"index":0,"%b,"finish_reason":"stop"}],"usage":' + USAGE + b"}\n"
JSON = b"content-type: application/json"
STREAM = b"content-type: text/event-stream"
CASES = {
    "chat": Case(
        b"/v1/chat/completions",
        CHAT,
        ANSWERED.replace(b"%b", b"chat.completion", 1).replace(b"%b", b'message":{"content":"\\"usage\\": {"}'),
        JSON,
        (100, 107),
    ),
    "chat, streamed": Case(
        b"/v1/chat/completions",
        body(SAID, "gpt-4o", stream=True),
        b': hello\n\ndata: {"choices":[{"index":0,"delta":{"content":"usage"}}],"usage":null}\r\n\r\n'
        b'data: {"choices":[],"x_groq":{"usage":' + USAGE + b'},"usage": ' + USAGE + b"}\n\ndata: [DONE]\n\n",
        STREAM,
        (100, 107, 100, 107),
    ),
    "completions": Case(
        b"/v1/completions",
        json.dumps({"model": "gpt-3.5-turbo-instruct", "prompt": "A ship. " * 9_000, "max_tokens": 20}).encode(),
        ANSWERED.replace(b"%b", b"text_completion", 1).replace(b"%b", b'text":"ok"'),
        JSON,
        (100, 107),
    ),
    "responses": Case(
        b"/v1/responses",
        json.dumps({"model": "gpt-4o", "input": _plain(SAID)}).encode(),
        RESPONSE,
        JSON,
        (100, 105),
    ),
    "responses, streamed": Case(
        b"/v1/responses",
        json.dumps({"model": "gpt-4o", "input": _plain(SAID), "stream": True}).encode(),
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"usage"}\n\n'
        b'event: response.completed\ndata: {"type":"response.completed","response":' + RESPONSE + b"}\n\n",
        STREAM,
        (100, 105),
    ),
    "messages": Case(
        b"/v1/messages",
        json.dumps({"model": "claude-3-5-haiku-latest", "max_tokens": 50, "messages": _plain(SAID)}).encode(),
        MESSAGE,
        JSON,
        (100,),
    ),
    "messages, streamed": Case(
        b"/v1/messages",
        json.dumps(
            {"model": "claude-3-5-haiku-latest", "max_tokens": 50, "messages": _plain(SAID), "stream": True}
        ).encode(),
        b'event: message_start\ndata: {"type":"message_start","message":{"type":"message","content":[],"usage":'
        b'{"input_tokens":%d,"cache_read_input_tokens":0,"output_tokens":1}}  }\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
        b'"text":"Hi"}}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"input_tokens":%d,"output_tokens":4}}\n\nevent: message_stop\ndata: {"type":"message_stop"   }\n\n',
        STREAM,
        (100, 100),
    ),
    "messages, streamed by a server that counts late": Case(
        b"/v1/messages",
        json.dumps(
            {"model": "claude-3-5-haiku-latest", "max_tokens": 50, "messages": _plain(SAID), "stream": True}
        ).encode(),
        b'event: message_start\ndata: {"type":"message_start","message":{"type":"message","content":[],"usage":'
        b'{"input_tokens":0,"output_tokens":0}}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"input_tokens":%d,"output_tokens":4}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
        STREAM,
        (100,),
    ),
    "ollama": Case(
        b"/api/chat",
        json.dumps({"model": "llama3", "messages": _plain(SAID), "stream": False}).encode(),
        b'{"model":"llama3","message":{"role":"assistant","content":"prompt_eval_count"},"done":true,'
        b'"done_reason":"stop","prompt_eval_count" : %d,"eval_count":3}',
        JSON,
        (100,),
    ),
    "ollama, streamed": Case(
        b"/api/generate",
        json.dumps({"model": "llama3", "prompt": "A ship. " * 9_000}).encode(),
        b'{"model":"llama3","response":"prompt_eval_count","done":false}\n'
        b'{"model":"llama3","response":"","done":true,"prompt_eval_count":%d,"eval_count":3,"total_duration":3}\n',
        LINES,
        (100,),
    ),
    "embeddings": Case(
        b"/v1/embeddings",
        json.dumps({"model": "text-embedding-3-small", "input": ["A ship. " * 9_000]}).encode(),
        b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1.25e-3]}],"usage":'
        b'{"prompt_tokens":%d,"total_tokens":%d}}',
        JSON,
        (100, 100),
    ),
}


def answering(case: Case, *headers: bytes, packed: Callable[[bytes], bytes] = bytes) -> Script:
    """An upstream that has counted 100 tokens."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"data":[]}'))
            return
        await peer.send(answer(packed(case.answer % case.figures), headers=(case.kind, *headers)))

    return script


async def asked(proxy: Running, case: Case, *headers: bytes) -> Reply:
    return await ask(proxy.port, post(case.sent, JSON, KEY, SMALL, *headers, target=case.path))


def cut_by(reply: Reply) -> int:
    told = ours(reply)
    return int(told["tokens"]) - int(told["tokens-sent"])


@pytest.mark.parametrize("how", ["header", "setting", "neither", "header against the setting"])
@pytest.mark.parametrize("name", CASES)
def test_the_prompt_is_reported_as_it_was_asked_and_every_other_byte_stays(name: str, how: str, tmp_path: Any) -> None:
    case = CASES[name]
    headers: tuple[bytes, ...] = ()
    setting: dict[str, str] = {}
    if how == "header":
        headers = (ASKED,)
    elif how == "setting":
        setting = {"PLIMSOLL_USAGE": "asked"}
    elif how != "neither":
        headers, setting = (b"x-plimsoll-usage: sent",), {"PLIMSOLL_USAGE": "asked"}
    if name == "embeddings":
        (tmp_path / "ladder.toml").write_text('[[step]]\nname = "truncate_inputs"\n')
        setting = {**setting, "PLIMSOLL_RULES": str(tmp_path)}

    async def check() -> None:
        async with recording(answering(case)) as up, plimsoll(up.url, **setting) as proxy:
            got = await asked(proxy, case, *headers)
            assert got.status == 200, got
            more = cut_by(got)
            assert more > 500
            told_more = more if how in ("header", "setting") else 0
            assert got.body == case.answer % tuple(figure + told_more for figure in case.figures)
            if case.kind == JSON:
                assert got.header(b"content-length") == [b"%d" % len(got.body)]
            told = await proxy.told()
            assert told.usage is not None and told.usage.prompt in (100, 131)  # what the upstream counted

    run(check())


@pytest.mark.parametrize("name", CASES)
def test_the_answer_to_a_request_that_fits_passes_byte_for_byte(name: str) -> None:
    case = CASES[name]
    fields = {**json.loads(case.sent)}
    fields |= {"messages": SAID[-1:]} if "messages" in fields else {}
    fields |= {key: "A ship." for key in ("input", "prompt") if key in fields}
    short = case._replace(sent=json.dumps(fields).encode())

    async def check() -> None:
        async with recording(answering(case)) as up, plimsoll(up.url) as proxy:
            got = await asked(proxy, short, ASKED, b"accept-encoding: gzip")
            assert got.body == case.answer % case.figures and got.header(b"content-length")
            assert up.requests[-1].body == short.sent
            assert up.requests[-1].header(b"accept-encoding") == [b"gzip"]

    run(check())


def _marked(body: bytes) -> bytes:
    return b"\x0b" + body


PACKED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "br": _marked}


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("name", ["chat", "messages, streamed"])
def test_an_answer_that_comes_compressed_all_the_same_is_decoded_or_passes_as_it_is(name: str, coding: str) -> None:
    case = CASES[name]
    pack = PACKED[coding]

    async def check() -> None:
        script = answering(case, b"content-encoding: " + coding.encode(), b"etag: x", packed=pack)
        async with recording(script) as up, plimsoll(up.url) as proxy:
            got = await asked(proxy, case, ASKED, b"accept-encoding: gzip, br")
            assert up.requests[-1].header(b"accept-encoding") == [b"identity"]
            if coding == "br":
                assert got.body == pack(case.answer % case.figures) and got.header(b"content-encoding") == [b"br"]
                return
            assert got.body == case.answer % tuple(figure + cut_by(got) for figure in case.figures)
            assert not got.header(b"content-encoding") and not got.header(b"etag")
            told = await proxy.told()
            assert told.usage is not None and told.usage.prompt == 100

    run(check())


def test_what_is_observed_only_is_reported_as_it_was_sent() -> None:
    async def check() -> None:
        async with recording(answering(CASES["chat"])) as up, plimsoll(up.url, PLIMSOLL_MODE="observe") as proxy:
            got = await asked(proxy, CASES["chat"], ASKED)
            assert got.body == CASES["chat"].answer % (100, 107) and up.requests[-1].body == CHAT

    run(check())


def test_an_error_and_an_answer_without_usage_pass_as_they_are() -> None:
    async def check(status: bytes, said: bytes) -> None:
        async def script(request: Request, peer: Peer) -> None:
            await peer.send(answer(said, status))

        async with recording(script) as up, plimsoll(up.url) as proxy:
            assert (await asked(proxy, CASES["chat"], ASKED)).body == said

    for status, said in (
        (b"429 Too Many", b'{"error":{"message":"slow"},"usage":{"prompt_tokens":5}}'),
        (b"200 OK", b'{"choices":[]}'),
        (b"200 OK", b'["usage"]'),
        (b"200 OK", b'{"usage":{"prompt_tokens":5},"usage":{"prompt_tokens":6}}'),
    ):
        run(check(status, said))


@pytest.mark.parametrize("name", [name for name in CASES if "streamed" in name])
def test_a_stream_may_be_split_at_any_byte(name: str) -> None:
    case = CASES[name]
    raw = case.answer % case.figures

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"data":[]}'))
            return
        pieces = (chunk(raw[place : place + 1]) for place in range(len(raw)))
        await peer.send(head(b"200 OK", case.kind, b"transfer-encoding: chunked"), *pieces, b"0\r\n\r\n")

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url) as proxy:
            got = await asked(proxy, case, ASKED)
            assert got.body == case.answer % tuple(figure + cut_by(got) for figure in case.figures)

    run(check())


@pytest.mark.parametrize("value", [b"both", b"", b"ASKED", b"sent,asked", b"\xff", b"1"])
def test_another_value_is_a_400_in_the_apis_shape(value: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(CHAT, b"x-plimsoll-usage: " + value)
            assert (got.status, error(got)["param"], up.requests) == (400, "x-plimsoll-usage", [])
            got = await asked(proxy, CASES["messages"], b"x-plimsoll-usage: " + value)
            assert got.status == 400 and json.loads(got.body)["error"]["type"] == "invalid_request_error"

    run(check())


@pytest.mark.parametrize("path", [b"/v1/messages/count_tokens", b"/v1/responses/input_tokens"])
@pytest.mark.parametrize("header", [b"x-plimsoll-usage: sent", ASKED])
def test_a_count_that_a_client_asks_for_is_of_what_it_asks_with(path: bytes, header: bytes) -> None:
    counted = b'{"input_tokens": 70000}'

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(counted))

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url) as proxy:
            got = await ask(proxy.port, post(CHAT, JSON, KEY, SMALL, header, target=path))
            assert got.body == counted and up.requests[-1].body == CHAT
            assert not up.requests[-1].header(b"x-plimsoll-usage")

    run(check())
