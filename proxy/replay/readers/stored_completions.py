"""OpenAI's stored completions: `GET /v1/chat/completions` and, for their messages, `GET .../{id}/messages`.

Source: OpenAI's API specification, ChatCompletionList and ChatCompletionMessageList. A completion has no messages: they
come in a list of their own, and the id of a message is that of its completion, `-` and a number. Both may be in one
file, in any order; or a completion has them under `messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from proxy.model.lenient_json import Json, RawFields, mapping
from proxy.replay.recorded import Found, Reader, Recorded, Skipped
from proxy.replay.values import body, moment, of, text, usage, value

COMPLETION, LIST = "chat.completion", "list"
SAME = ("model", "tools", "tool_choice", "response_format", "temperature", "top_p", "seed", "metadata", "user")
MAX_WAITING = 10_000
WITHOUT = "a stored completion without its messages (GET /chat/completions/{id}/messages)"


def recognises(fields: RawFields) -> bool:
    """Whether it is a completion, a message of one, or a list of either."""
    kind = value(fields.get("object"))
    listed = {"id", "role", "content"} <= fields.keys() and text(of(fields, "id")).startswith("chatcmpl-")
    return kind == COMPLETION or (kind == LIST and "data" in fields) or listed


class _Stored:
    """Joins the completions of a file with their messages."""

    def __init__(self) -> None:
        self._completions: dict[str, Mapping[str, Any]] = {}
        self._messages: dict[str, list[Json]] = {}

    def __call__(self, entry: bytes, fields: RawFields) -> Iterator[Found]:
        """See `Read`."""
        items = of(fields, "data") if "data" in fields else [{k: value(v) for k, v in fields.items()}]
        for item in items if isinstance(items, list) else ():
            found = mapping(item)
            if found.get("object") == COMPLETION:
                yield from self._completion(found)
            elif "role" in found and "-" in (number := text(found.get("id"))):
                self._keep(self._messages.setdefault(number.rpartition("-")[0], []), found)
        yield from self._joined()

    def _keep(self, messages: list[Json], message: Mapping[str, Json]) -> None:
        parts = message.get("content_parts") or message.get("content")
        messages.append({**{k: v for k, v in message.items() if k not in ("id", "content_parts")}, "content": parts})

    def _completion(self, found: Mapping[str, Json]) -> Iterator[Found]:
        if isinstance(found.get("messages"), list):
            yield _request(found, found["messages"])
        elif len(self._completions) < MAX_WAITING:
            self._completions[text(found.get("id"))] = {k: v for k, v in found.items() if k != "choices"}
        else:
            yield Skipped(WITHOUT)

    def _joined(self) -> Iterator[Found]:
        for number in [number for number in self._messages if number in self._completions]:
            yield _request(self._completions.pop(number), self._messages.pop(number))
        if len(self._messages) > MAX_WAITING:
            self._messages.clear()

    def end(self) -> Iterable[Found]:
        """Completions whose messages never came."""
        return [Skipped(WITHOUT)] * len(self._completions)


def _request(found: Mapping[str, Json], messages: Json) -> Found:
    return Recorded(
        body({**{k: found.get(k) for k in SAME}, "messages": messages}),
        at=moment(found.get("created")),
        path="/v1/chat/completions",
        app=text(mapping(found.get("metadata")).get("app")),
        caller=text(found.get("input_user")),
        usage=usage(found.get("usage")),
        status=200,
    )


READER = Reader("OpenAI stored completions", recognises, _Stored)
