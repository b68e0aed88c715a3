"""A fast upstream that is not the bottleneck: answers every POST at once, plain or in `max_tokens` chunks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import uvloop

ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":3,"total_tokens":%d}}'
)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
TOKENS = 0.225  # of a byte of the bodies in `loads`; far fewer would say that the prompt was cut
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":'
    b'[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)
DONE = EVENT.replace(b'"content":" word"', b"").replace(b"null", b'"stop"') + b"data: [DONE]\n\n"
RESPONSE = (
    b'{"id":"resp_1","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,'
    b'"model":"gpt-4o","output":[{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":'
    b'[{"type":"output_text","text":"Hello there","annotations":[],"logprobs":[]}]}],"parallel_tool_calls":true,'
    b'"store":false,"tool_choice":"auto","tools":[],"usage":{"input_tokens":%d,"input_tokens_details":'
    b'{"cached_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}}'
)
TEXT_DELTA = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","content_index":0,"delta":" word",'
    b'"item_id":"msg_1","logprobs":[],"output_index":0,"sequence_number":9}\n\n'
)
CREATED = b'event: response.created\ndata: {"type":"response.created","response":%b,"sequence_number":0}\n\n'
COMPLETED = b'event: response.completed\ndata: {"type":"response.completed","response":%b,"sequence_number":9}\n\n'
MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text",'
    b'"text":"Hello there"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":%d,"total":%d,'
    b'"output_tokens":3}}'
)
STARTED = (
    b'event: message_start\ndata: {"type":"message_start","message":%b}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text",'
    b'"text":""}}\n\n'
)
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
    b'"text":" word"}}\n\n'
)
STOPPED = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
    b'"usage":{"output_tokens":100}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)
CHUNKS = 100  # of a stream whose request does not say
LIMIT = b'_tokens":'  # max_tokens, max_output_tokens: the first such field of the bodies in `loads`
PACE = 0.001  # seconds between chunks: each leaves alone, as tokens do
pace = PACE


@dataclass(frozen=True, slots=True)
class Form:
    """How an API answers: whole, with the tokens of the prompt and of both; and what begins a stream, with that answer,
    each of its chunks, and what ends it."""

    answer: bytes
    begin: Callable[[bytes], bytes]
    chunk: bytes
    end: Callable[[bytes], bytes]


FORMS = {
    b"/v1/chat/completions": Form(ANSWER, lambda answer: EVENT, EVENT, lambda answer: DONE),
    b"/v1/responses": Form(RESPONSE, CREATED.__mod__, TEXT_DELTA, COMPLETED.__mod__),
    b"/v1/messages": Form(MESSAGE, STARTED.__mod__, DELTA, lambda answer: STOPPED),
}
CHAT = FORMS[b"/v1/chat/completions"]


class Upstream(asyncio.Protocol):
    """One connection; requests are framed by content-length, as every proxy under test sends them."""

    def __init__(self) -> None:
        self.left = -1
        self.length = 0
        self.seen = bytearray()
        self.stream = False
        self.form = CHAT
        self.chunks = CHUNKS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class only behaves like it

    def data_received(self, data: bytes) -> None:
        """Counts the body's bytes and answers when the last has come."""
        if self.left < 0:
            self.seen += data
            end = self.seen.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.seen[:end]).lower()
            self.form = FORMS.get(head.split(b" ", 2)[1], CHAT)
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            body = self.seen[end + 4 :]
            start = bytes(body[:4096])
            self.stream = b'"stream":true' in start or b'"stream": true' in start
            self.chunks = int(start.partition(LIMIT)[2].partition(b",")[0]) if LIMIT in start else CHUNKS
            self.length = length
            self.left = length - len(body)
            self.seen.clear()
        else:
            self.left -= len(data)
        if self.left <= 0:
            self.left = -1
            self.answer()

    def answer(self) -> None:
        """The whole answer, or its stream chunk by chunk."""
        prompt = round(TOKENS * self.length)
        body = self.form.answer % (prompt, prompt + 3)
        if not self.stream:
            self.transport.write(PLAIN % (len(body), body))
            return
        self.transport.write(HEAD + chunked(self.form.begin(body)))
        end = chunked(self.form.end(body)) + b"0\r\n\r\n"
        self.send(self.chunks - 1, chunked(self.form.chunk), end)

    def send(self, left: int, chunk: bytes, end: bytes) -> None:
        """The next chunk, and the one after it later."""
        if self.transport.is_closing():
            return
        if not left:
            self.transport.write(end)
            return
        self.transport.write(chunk)
        asyncio.get_running_loop().call_later(pace, self.send, left - 1, chunk, end)


def chunked(data: bytes) -> bytes:
    """One chunk of a body in HTTP's chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def main(port: int) -> None:
    """Serves until it is killed."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    pace = float(sys.argv[2]) if len(sys.argv) > 2 else PACE
    uvloop.run(main(int(sys.argv[1])))
