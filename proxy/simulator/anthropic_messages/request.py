"""A request of the Messages API as the simulator reads it, and errors in Anthropic's envelope. It checks nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.simulator.check import ApiError
from proxy.simulator.json import Json

# 529 is Anthropic's own; 413 is answered by its edge.
TYPES: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
INVALID, SERVER = "invalid_request_error", "api_error"
WRITES_ON = "model-context-window-exceeded-"  # a beta
OLD = re.compile(r"claude-(?:[23]|instant|[a-z]+-4(?:-[01]\b|-2\d{7}|$|@))")  # models before 4.5

Body = Mapping[str, Any]
Message = Mapping[str, Any]
Check = Callable[["Request"], ApiError | None]


class AnthropicError(ApiError):
    """An error in Anthropic's envelope."""

    def body(self) -> bytes:
        """The JSON of the answer."""
        kind = TYPES.get(self.status, INVALID if self.status < 500 else SERVER)
        error = {"type": kind, "message": self.message}
        return msgspec.json.encode({"type": "error", "error": error, "request_id": "req_simulator"})


def failure(error: ApiError) -> AnthropicError:
    """An error of the simulator's in Anthropic's envelope."""
    return error if isinstance(error, AnthropicError) else AnthropicError(error.status, error.message)


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its JSON, its `anthropic-beta` values, and the model's largest reply limit."""

    body: Body
    betas: tuple[str, ...] = ()
    max_output: int | None = None
    counting: bool = False
    version: str = ""

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.body["model"])

    @property
    def messages(self) -> Sequence[Message]:
        """The messages, in order."""
        found: Sequence[Message] = self.body["messages"]
        return found

    @property
    def separate(self) -> bool:
        """Whether the reply does not count against the window: since Claude 4.5, and before by a beta."""
        return OLD.search(self.model) is None or self.may(WRITES_ON)

    def may(self, *beginnings: str) -> bool:
        """Whether one of these betas is on."""
        return any(beta.startswith(beginnings) for beta in self.betas)


def invalid(text: str) -> AnthropicError:
    """A 400."""
    return AnthropicError(400, text)


def expected_tags(path: str, kind: str, known: Sequence[str]) -> AnthropicError:
    """The error for a value of an unknown type."""
    tags = ", ".join(f"'{name}'" for name in known)
    text = f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
    return invalid(text)


def field_required(path: str) -> AnthropicError:
    """The error for a field that is missing."""
    return invalid(f"{path}: Field required")


def blocks_of(message: Message) -> list[Mapping[str, Any]]:
    """The blocks of a message's content."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def types_of(message: Message) -> list[Json]:
    """The types of a message's blocks, as the client sent them."""
    return [block.get("type") for block in blocks_of(message)]


def turns(request: Request) -> Iterator[tuple[int, str, list[tuple[str, Mapping[str, Any]]]]]:
    """Place, role and blocks of each turn: consecutive messages of one role are merged first. Each block has its
    path. System messages stand outside the turns."""
    place, role, found = 0, "", list[tuple[str, Mapping[str, Any]]]()
    for i, m in enumerate(request.messages):
        if m["role"] == "system":
            continue
        if m["role"] != role and role:
            yield place, role, found
            found = []
        if not found:
            place, role = i, m["role"]
        found += [(f"messages.{i}.content.{k}", block) for k, block in enumerate(blocks_of(m))]
    yield place, role, found
