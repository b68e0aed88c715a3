"""Claude Code's sessions: `~/.claude/projects/**/*.jsonl`.

Sources: docs.claude.com, Claude Code, "Sessions"; the fields as ccusage reads them: a line is an event with `type`,
`uuid`, `sessionId`, `timestamp` and, of `user` and `assistant`, a `message` of the Messages API. An answer is written
as a line for each of its blocks, all with one `message.id`; its `usage` is that of its request. A compaction begins the
conversation anew (`isCompactSummary`).

A request is rebuilt before each answer, of all messages until then. The system prompt and the tools are not in the
file. That Claude Code marks the end of each request for the prompt cache is not either; it is taken to do so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from proxy.model.lenient_json import Json, RawFields, mapping
from proxy.replay.recorded import MAX_SESSION, TOO_LONG, Found, Reader, Recorded, Skipped
from proxy.replay.values import body, moment, of, text, usage, value

MISSING = ("system prompt", "tools")
NO_MODEL = "<synthetic>"  # of what Claude Code itself writes in place of an answer
MAX_TOKENS = 32_000  # that Claude Code asks for by default
CACHE = {"type": "ephemeral"}


def recognises(fields: RawFields) -> bool:
    """Whether it is a line of a session."""
    if "sessionId" in fields and "type" in fields:
        return True
    kind = value(fields.get("type"))
    return kind == "file-history-snapshot" or (kind == "summary" and "leafUuid" in fields)


class _Session:
    """Rebuilds the requests of one file: those of the session, and those of agents that it started (side chains)."""

    def __init__(self) -> None:
        self._chains: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        self._answer: dict[bool, str] = {}
        self._sizes = {False: 0, True: 0}

    def __call__(self, entry: bytes, fields: RawFields) -> Iterator[Found]:
        """See `Read`."""
        kind = of(fields, "type")
        message = mapping(of(fields, "message"))
        if kind not in ("user", "assistant") or message.get("content") in (None, "", []):
            yield Skipped("a line of a session that is no message", other=True)
            return
        side = of(fields, "isSidechain") is True
        self._sizes[side] += len(entry)
        if (too_long := self._sizes[side] > MAX_SESSION) or of(fields, "isCompactSummary") is True:
            self._chains[side], self._sizes[side] = [], len(entry)
        if too_long:
            yield TOO_LONG
        if kind == "assistant":
            yield from self._assistant(fields, message, side)
        else:
            self._chains[side].append({"role": "user", "content": message["content"]})

    def _assistant(self, fields: RawFields, message: Any, side: bool) -> Iterator[Found]:
        if message.get("model") == NO_MODEL or of(fields, "isApiErrorMessage") is True:
            yield Skipped("an answer that Claude Code itself wrote", other=True)
            return
        chain, number = self._chains[side], text(message.get("id")) or text(of(fields, "uuid"))
        content = message["content"] if isinstance(message["content"], list) else [_text(message["content"])]
        if self._answer.get(side) == number and chain and chain[-1]["role"] == "assistant":
            chain[-1]["content"] = [*chain[-1]["content"], *content]
            return
        self._answer[side] = number
        if chain:
            yield _request(fields, message, chain)
        else:
            yield Skipped("an answer whose request is not in the file")
        chain.append({"role": "assistant", "content": content})

    def end(self) -> Iterable[Found]:
        """Nothing is left."""
        return ()


def _text(said: Json) -> Json:
    return {"type": "text", "text": said}


def _request(fields: RawFields, message: Any, chain: list[dict[str, Any]]) -> Found:
    model = text(message.get("model"))
    return Recorded(
        body({"model": model, "max_tokens": MAX_TOKENS, "messages": chain, "cache_control": CACHE}),
        at=moment(of(fields, "timestamp")),
        path="/v1/messages",
        app=(text(of(fields, "cwd")).rstrip("/").rpartition("/")[2] or "Claude Code"),
        caller="Claude Code",
        usage=usage(message.get("usage")),
        status=200,
        missing=MISSING,
    )


READER = Reader("Claude Code", recognises, _Session)
