"""Codex's sessions: `~/.codex/sessions/**/*.jsonl`.

Sources: openai/codex, codex-rs/protocol (`RolloutItem`): a line has `timestamp`, `type` and `payload`. `session_meta`
may have the instructions, `turn_context` the model; a `response_item` is an item of the Responses API; an `event_msg`
of the type `token_count` has `info.last_token_usage` of the request before it (ccusage); `compacted` begins the
conversation anew.

A request is rebuilt before the first item of each answer, of all items until then. The tools are not in the file, nor
are the instructions in older ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from proxy.model.lenient_json import Json, RawFields, mapping
from proxy.replay.recorded import MAX_SESSION, TOO_LONG, Found, Reader, Recorded, Skipped
from proxy.replay.values import body, moment, of, text, usage

KINDS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
OUTPUT = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call"})


def recognises(fields: RawFields) -> bool:
    """Whether it is a line of a session."""
    return {"timestamp", "type", "payload"} <= fields.keys() and text(of(fields, "type")) in KINDS


class _Session:
    """Rebuilds the requests of one session."""

    def __init__(self) -> None:
        self._model = self._app = ""
        self._instructions: str | None = None
        self._items: list[Json] = []
        self._size = 0
        self._answering = False
        self._waiting: Recorded | None = None  # for its usage

    def __call__(self, entry: bytes, fields: RawFields) -> Iterator[Found]:
        """See `Read`."""
        kind, payload = of(fields, "type"), mapping(of(fields, "payload"))
        self._size += len(entry)
        if self._size > MAX_SESSION:
            self._items, self._size = [], len(entry)
            yield TOO_LONG
        if kind == "response_item" and payload:
            yield from self._item(fields, payload)
            return
        if kind == "event_msg" and payload.get("type") == "token_count":
            yield from self._counted(payload)
        elif kind == "session_meta":
            self._instructions = _instructions(payload) or self._instructions
            self._app = text(payload.get("cwd")).rstrip("/").rpartition("/")[2]
        elif kind == "turn_context":
            self._model = text(payload.get("model")) or self._model
        elif kind == "compacted":
            history = payload.get("replacement_history")
            self._items = list(history) if isinstance(history, list) else [_said(payload.get("message"))]
            self._size = len(entry)
        yield Skipped("a line of a session that is no item", other=True)

    def _item(self, fields: RawFields, item: Any) -> Iterator[Found]:
        written = text(item.get("type")) in OUTPUT or item.get("role") == "assistant"
        if written and not self._answering:
            yield from self.end()
            self._waiting = self._request(fields)
            if self._waiting is None:
                yield Skipped("an answer whose request or model is not in the file")
        self._answering = written
        self._items.append({k: v for k, v in item.items() if k not in ("id", "status")})

    def _request(self, fields: RawFields) -> Recorded | None:
        if not self._model or not self._items:
            return None
        asked = {"model": self._model, "instructions": self._instructions, "input": self._items, "store": False}
        return Recorded(
            body(asked),
            at=moment(of(fields, "timestamp")),
            path="/v1/responses",
            app=self._app or "Codex",
            caller="Codex",
            status=200,
            missing=("tools",) if self._instructions else ("instructions", "tools"),
        )

    def _counted(self, payload: Any) -> Iterator[Found]:
        found = mapping(mapping(payload.get("info")).get("last_token_usage"))
        if self._waiting is not None and found:
            details = {"input_tokens_details": {"cached_tokens": found.get("cached_input_tokens")}}
            yield replace(self._waiting, usage=usage({**found, **details}))
            self._waiting = None

    def end(self) -> Iterable[Found]:
        """The last request, if its usage never came."""
        found, self._waiting = self._waiting, None
        return () if found is None else (found,)


def _instructions(payload: Any) -> str | None:
    found = payload.get("base_instructions") or payload.get("instructions")
    found = found.get("text") if isinstance(found, dict) else found
    return found if isinstance(found, str) else None


def _said(message: Json) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": str(message or "")}]}


READER = Reader("Codex", recognises, _Session)
