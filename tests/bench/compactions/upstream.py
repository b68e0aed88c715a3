"""A scripted upstream for real agents: it has a file read in each turn, summarises perfectly, and past a window that it
does not announce it refuses as the provider does. It records every body."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from proxy.simulator.anthropic_messages.counting import count_prompt as count_messages
from proxy.simulator.openai_chat.counting import count_prompt as count_chat
from proxy.simulator.openai_responses.counting import count_prompt as count_responses
from proxy.simulator.refusals import PROVIDERS

Json = dict[str, Any]
CODE = re.compile(r"KX-\d{5}")  # each seeded fact has one
READ = re.compile(r"read the file (\S+\.md)")
MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
READERS = ("Read", "read", "read_file", "exec_command", "shell", "shell_command")  # each agent's tool that reads a file
REFUSALS = {MESSAGES: "anthropic", RESPONSES: "openai", CHAT: "vllm"}


@dataclass(slots=True)
class Seen:
    """One request: its path and body, the tokens that its prompt has, and whether it was answered."""

    path: str
    body: Json
    tokens: int
    answered: bool

    @property
    def codes(self) -> frozenset[str]:
        """The codes of facts in it."""
        return frozenset(CODE.findall(json.dumps(self.body)))


@dataclass(slots=True)
class Script:
    """How the upstream behaves, and what it saw. `window`: in tokens; 0 for none. `said`: what it says after a file was
    read, by the file's name; empty: it only sums up."""

    said: dict[str, str]
    window: int = 0
    seen: list[Seen] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class Reply:
    """A text, or the call of a tool."""

    text: str = ""
    tool: str = ""
    arguments: Json = field(default_factory=dict)
    tokens: int = 0


def tokens_of(path: str, raw: bytes, body: Json) -> int:
    """The tokens of a prompt, by the recipe of its API."""
    if path.startswith(MESSAGES):
        return count_messages(raw)
    return count_responses(body) if path.startswith(RESPONSES) else count_chat(raw)


def reply_to(script: Script, body: Json, tokens: int) -> Reply:
    """The reply: a call that reads the file which the user names, what is said once it was read, or a summary of all
    codes in the request."""
    items = body.get("messages") or body.get("input") or []
    asked = [name for item in items if item.get("role") == "user" for name in READ.findall(json.dumps(item))]
    ours = json.dumps([m for m in items if m.get("role") == "assistant" or m.get("type") == "function_call"])
    tools = [name for name in map(_tool_name, body.get("tools") or ()) if name in READERS]
    if script.said and asked and tools and asked[-1] not in ours:
        tool = next(name for name in READERS if name in tools)
        return Reply(tool=tool, arguments=_arguments(tool, asked[-1], body), tokens=tokens)
    said = script.said.get(asked[-1].rpartition("/")[2], "") if asked else ""
    if said and json.dumps(said)[1:-1] not in ours:
        return Reply(said, tokens=tokens)
    found = ", ".join(sorted(set(CODE.findall(json.dumps(body)))))
    text = f"The codes so far: {found}."
    return Reply(f"<analysis>All codes.</analysis>\n<summary>\n<state_snapshot>{text}</state_snapshot>\n</summary>",
                 tokens=tokens)  # fmt: skip


def _tool_name(tool: Json) -> str:
    return str(tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type") or "")


def _arguments(tool: str, path: str, body: Json) -> Json:
    if tool in ("exec_command", "shell_command"):
        return {"cmd" if tool == "exec_command" else "command": f"cat {path}"}
    if tool == "shell":
        return {"command": ["cat", path]}
    if tool == "read":
        return {"filePath": path}
    text = json.dumps(body.get("tools"))
    return {"absolute_path" if tool == "read_file" and '"absolute_path"' in text else "file_path": path}


def messages_events(reply: Reply) -> Iterator[tuple[str, Json]]:
    """The events of a stream of the Messages API."""
    usage = {"input_tokens": reply.tokens, "output_tokens": 1}
    start = {
        "id": f"msg_{reply.tokens}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }
    yield "message_start", {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None}}
    block: Json = {"type": "text", "text": ""}
    delta: Json = {"type": "text_delta", "text": reply.text}
    if reply.tool:
        block = {"type": "tool_use", "id": f"toolu_{reply.tokens}", "name": reply.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": "tool_use" if reply.tool else "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 30}}
    yield "message_stop", {"type": "message_stop"}


def messages_answer(reply: Reply) -> Json:
    """The same in one piece."""
    block: Json = {"type": "text", "text": reply.text}
    if reply.tool:
        block = {"type": "tool_use", "id": f"toolu_{reply.tokens}", "name": reply.tool, "input": reply.arguments}
    usage = {"input_tokens": reply.tokens, "output_tokens": 30}
    ended = {"stop_reason": "tool_use" if reply.tool else "end_turn", "stop_sequence": None}
    head = {"id": f"msg_{reply.tokens}", "type": "message", "role": "assistant", "model": "m"}
    return {**head, "content": [block], **ended, "usage": usage}


def response_of(reply: Reply) -> Json:
    """A whole response of the Responses API."""
    item: Json = {"type": "message", "id": f"msg_{reply.tokens}", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": reply.text, "annotations": []}]
    if reply.tool:
        item = {"type": "function_call", "id": f"fc_{reply.tokens}", "call_id": f"call_{reply.tokens}"}
        item |= {"name": reply.tool, "arguments": json.dumps(reply.arguments), "status": "completed"}
    usage: Json = {"input_tokens": reply.tokens, "output_tokens": 30, "total_tokens": reply.tokens + 30}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {"id": f"resp_{reply.tokens}", "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": [item], "usage": usage, "error": None}  # fmt: skip


def responses_events(reply: Reply) -> Iterator[tuple[str, Json]]:
    """The events of a stream of the Responses API."""
    whole = response_of(reply)
    item = whole["output"][0]
    yield "response.created", {"response": {**whole, "status": "in_progress", "output": []}}
    yield "response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress"}}
    if not reply.tool:
        yield "response.output_text.delta", {"item_id": f"msg_{reply.tokens}", "output_index": 0, "content_index": 0,
                                             "delta": reply.text}  # fmt: skip
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": whole}


def chat_answer(reply: Reply, key: str = "message") -> Json:
    """A chat completion, or with `delta` as the key the one chunk of its stream."""
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.tool:
        function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
        message["tool_calls"] = [{"index": 0, "id": f"call_{reply.tokens}", "type": "function", "function": function}]
    usage = {"prompt_tokens": reply.tokens, "completion_tokens": 30, "total_tokens": reply.tokens + 30}
    choice = {"index": 0, key: message, "finish_reason": "tool_calls" if reply.tool else "stop"}
    kind = "chat.completion" if key == "message" else "chat.completion.chunk"
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "m", "choices": [choice], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    """Answers by the script of its server."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        """Clients ask whether it is there."""
        self._send(200, b"", "application/json")

    def do_GET(self) -> None:
        """The list of models, without a window."""
        self._json(200, {"object": "list", "data": [{"id": "house-1", "object": "model"}]})

    def do_POST(self) -> None:
        """A request of one of the APIs."""
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, script = self.path.partition("?")[0], self.server.script
        try:
            body = json.loads(raw)
            tokens = tokens_of(path, raw, body)
        except Exception:
            return self._json(404, {"error": {"message": "not found"}})
        if path.endswith("/count_tokens"):
            return self._json(200, {"input_tokens": tokens})
        kind = next((kind for kind in REFUSALS if path.startswith(kind)), CHAT)
        refusal = PROVIDERS[REFUSALS[kind]].refusal(script.window, tokens, 0) if script.window else None
        with script.lock:
            script.seen.append(Seen(path, body, tokens, refusal is None))
        if refusal is not None:
            return self._refuse(kind, body, *refusal)
        self._answer(kind, path, body, reply_to(script, body, tokens))

    def _answer(self, kind: str, path: str, body: Json, reply: Reply) -> None:
        if path.endswith("/compact"):
            codes = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": reply.text}]}
            return self._json(200, {"id": "c1", "object": "response.compaction", "output": [codes], "usage": {}})
        if not body.get("stream"):
            whole = {MESSAGES: messages_answer, RESPONSES: response_of, CHAT: chat_answer}[kind]
            return self._json(200, whole(reply))
        if kind == CHAT:
            return self._send(
                200, b"data: " + json.dumps(chat_answer(reply, "delta")).encode() + b"\n\ndata: [DONE]\n\n"
            )
        events = messages_events(reply) if kind == MESSAGES else responses_events(reply)
        lines = [f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events]
        self._send(200, "".join(lines).encode())

    def _refuse(self, kind: str, body: Json, status: int, text: bytes) -> None:
        if kind == RESPONSES and body.get("stream"):  # as OpenAI does: inside the stream
            error = json.loads(text)["error"]
            failed = {"id": "resp_1", "object": "response", "status": "failed", "error": error, "output": []}
            line = json.dumps({"type": "response.failed", "response": failed})
            return self._send(200, f"event: response.failed\ndata: {line}\n\n".encode())
        self._send(status, text, "application/json")

    def _json(self, status: int, body: Json) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str = "text/event-stream") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """The server of one script."""

    daemon_threads = True
    script: Script


@contextmanager
def upstream(script: Script, port: int = 0) -> Iterator[str]:
    """Its URL, while it serves."""
    server = Server(("127.0.0.1", port), Handler)
    server.script = script
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
