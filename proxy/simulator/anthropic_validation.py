"""Validation of requests of the Messages API, in Anthropic's wording: one check per function.

It does not check the length of a prompt. Thinking blocks carry a signature of the simulator's own, which shows what
stood before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.simulator.check import ApiError
from proxy.simulator.json import Json
from proxy.simulator.shapes import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, Shape, wrong_type

# 529 is Anthropic's own; 413 is answered by its edge.
TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
INVALID, SERVER = "invalid_request_error", "api_error"
FIELDS = frozenset(
    "model messages max_tokens system tools tool_choice thinking output_config stop_sequences metadata stream "
    "temperature top_p top_k service_tier container cache_control inference_geo fallbacks".split()
)
# Fields that need a value of the header anthropic-beta, by the beginning of that value.
BETAS: Mapping[str, tuple[str, ...]] = {
    "context_management": ("context-management-", "compact-"),
    "output_format": ("structured-outputs-",),
    "mcp_servers": ("mcp-client-",),
    "compaction": ("compact-2026-09",),
    "thread": ("message-threads-",),
}
NOT_COUNTED = frozenset(("max_tokens", "stream", "metadata", "stop_sequences", "temperature", "top_p", "top_k"))
SAMPLING = ("temperature", "top_p", "top_k")
STRICT_VERSION = "2026-10-21"  # of the header anthropic-version
SERVER_TOOLS = ("web_search_", "web_fetch_", "code_execution_")
MAX_MARKS = 4
MIN_BUDGET = 1024
OLD = re.compile(r"claude-(?:[23]|instant|[a-z]+-4(?:-[01]\b|-2\d{7}|$|@))")  # models before 4.5
PREFILLS = re.compile(r"claude-(?:[a-z]+-4-5|[23])|" + OLD.pattern)
SYSTEM_MODEL = re.compile(r"claude-(?:opus-4-[89]|[a-z]+-[5-9]|sim)")
BINDING_MODEL = re.compile(r"claude-(?:fable|mythos)-5[.-][1-9]|sim-binding")
CONTROLS = "thinking-binding-controls-"
THINKING = ("thinking", "redacted_thinking")
SIGNED = "sim"  # the beginning of a signature of the simulator's

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

    def may(self, *beginnings: str) -> bool:
        """Whether one of these betas is on."""
        return any(beta.startswith(beginnings) for beta in self.betas)


def invalid(text: str) -> AnthropicError:
    """A 400."""
    return AnthropicError(400, text)


def validate(request: Request) -> ApiError | None:
    """The error of the first check that fails; None for a valid request."""
    return next((error for check in CHECKS if (error := check(request)) is not None), None)


def is_separate(model: str) -> bool:
    """Whether the reply does not count against the window: since Claude 4.5."""
    return OLD.search(model) is None


def blocks_of(message: Message) -> list[Mapping[str, Any]]:
    """The blocks of a message's content."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _types(message: Message) -> list[Json]:
    return [block.get("type") for block in blocks_of(message)]


def _fields_are_known(request: Request) -> ApiError | None:
    for name in request.body:
        known = name in FIELDS or (name in BETAS and request.may(*BETAS[name]))
        if not known or (request.counting and name in NOT_COUNTED):
            return invalid(f"{name}: Extra inputs are not permitted")
    required = ("model", "messages") if request.counting else ("model", "messages", "max_tokens")
    missing = next((name for name in required if name not in request.body), None)
    return None if missing is None else invalid(f"{missing}: Field required")


def _has_messages(request: Request) -> ApiError | None:
    found = request.body["messages"]
    if not isinstance(request.body["model"], str):
        return invalid("model: Input should be a valid string")
    if not isinstance(found, list) or not all(isinstance(m, dict) for m in found):
        return invalid("messages: Input should be a valid list")
    return None if found else invalid("messages: at least one message is required")


SOURCE = {"type": TEXT, "media_type": TEXT, "data": TEXT, "url": TEXT, "file_id": TEXT}
FLAT: Shape = {
    **dict.fromkeys(("type", "text", "id", "name", "tool_use_id", "thinking", "signature", "data", "title"), TEXT),
    "is_error": BOOLEAN,
    "cache_control": {"type": TEXT},
    "source": SOURCE,
}
INNER: Shape = {**FLAT, "source": {**SOURCE, "content": (TEXT, [FLAT])}}  # of a result: a document may hold blocks
BLOCK: Shape = {**INNER, "content": (TEXT, [INNER], OBJECT)}
REQUEST = {
    "messages": [{"role": TEXT, "content": (TEXT, [BLOCK])}],
    "system": (TEXT, [BLOCK]),
    "tools": [{"type": TEXT, "name": TEXT, "description": TEXT, "input_schema": OBJECT}],
    "tool_choice": {"type": TEXT, "name": TEXT, "disable_parallel_tool_use": BOOLEAN},
    "thinking": {"type": TEXT, "budget_tokens": INTEGER, "block_binding": {"prefix_mismatch_behavior": TEXT}},
    "output_config": {"format": {"type": TEXT, "schema": OBJECT}, "effort": TEXT},
    "output_format": {"type": TEXT, "schema": OBJECT},
    "context_management": {"edits": [{"type": TEXT}]},
    "stop_sequences": [TEXT],
    "metadata": {"user_id": TEXT},
    "stream": BOOLEAN,
    **dict.fromkeys(("temperature", "top_p"), NUMBER),
}
VALID = {TEXT: "string", INTEGER: "integer", NUMBER: "number", BOOLEAN: "boolean"}


def _types_are_right(request: Request) -> ApiError | None:
    found = wrong_type(request.body, REQUEST)
    if found is None:
        return None
    shape = found.shape[-1] if isinstance(found.shape, tuple) else found.shape
    named = "list" if isinstance(shape, list) else "dictionary" if isinstance(shape, dict) else VALID[shape]
    return invalid(f"{found.path(dotted=True)}: Input should be a valid {named}")


def _roles_are_valid(request: Request) -> ApiError | None:
    for i, m in enumerate(request.messages):
        if m.get("role") not in ("user", "assistant", "system"):
            return invalid(f"messages.{i}.role: Input should be 'user' or 'assistant'")
        if m["role"] == "system" and not SYSTEM_MODEL.search(request.model):
            return invalid(f"messages.{i}: role 'system' is not supported on this model")
    if request.messages[0]["role"] == "system":
        return invalid(
            "messages.0: role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool "
            "result; use the top-level 'system' parameter for the initial system prompt"
        )
    if request.messages[0]["role"] != "user":
        return invalid('messages: first message must use the "user" role')
    return None


def _systems_stand_right(request: Request) -> ApiError | None:
    """Runs of several system messages count as one."""
    messages = request.messages
    for i, m in enumerate(messages):
        if m["role"] != "system":
            continue
        behind = next((n for n in messages[i + 1 :] if n["role"] != "system"), None)
        before = next(n for n in reversed(messages[:i]) if n["role"] != "system")
        if behind is not None and behind["role"] != "assistant":
            return invalid(
                f"messages.{i}: role 'system' must precede an 'assistant' message or end the array; the directive-only "
                "form (content: [] with output_config) is accepted at any position"
            )
        if before["role"] == "assistant" and not str((_types(before) or [""])[-1]).endswith("_tool_result"):
            return invalid(
                f"messages.{i}: role 'system' must follow a 'user' message or an 'assistant' message ending in a "
                "server tool result"
            )
    return None


def _contents_are_valid(request: Request) -> ApiError | None:
    for i, m in enumerate(request.messages):
        content = m.get("content")
        if not isinstance(content, str | list):
            return invalid(f"messages.{i}.content: Input should be a valid list")
        if not content and not (m["role"] == "assistant" and i == len(request.messages) - 1):
            return invalid(
                f"messages.{i}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
        for k, block in enumerate(blocks_of(m)):
            if block.get("type") == "text" and not block.get("text"):
                return invalid("messages: text content blocks must be non-empty")
            if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
                return invalid(f"messages.{i}.content.{k}.tool_use.input: Input should be a valid dictionary")
    return None


def _turns(request: Request) -> Iterator[tuple[int, str, list[tuple[str, Mapping[str, Any]]]]]:
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


def _results_answer_calls(request: Request) -> ApiError | None:
    waiting: list[str] = []
    asked_at = 0
    for place, role, blocks in _turns(request):
        answered = [block.get("tool_use_id") for _, block in blocks if block.get("type") == "tool_result"]
        if answered and role != "user":
            return invalid(f"messages.{place}: `tool_result` blocks can only be in `user` messages")
        for path, block in blocks:
            if block.get("type") == "tool_result" and block.get("tool_use_id") not in waiting:
                return invalid(
                    f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {block.get('tool_use_id')}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        missing = [ident for ident in waiting if ident not in answered]
        if missing or len(answered) != len(set(answered)):
            return _unanswered(asked_at, missing or [str(ident) for ident in answered])
        types = [block.get("type") for _, block in blocks]
        if "tool_result" in types[len(answered) :]:  # a text or an image stands before a result
            return _unanswered(asked_at, waiting)
        waiting = [str(block.get("id")) for _, block in blocks if block.get("type") == "tool_use"]
        asked_at = place
    return _unanswered(asked_at, waiting) if waiting else None


def _unanswered(place: int, idents: Sequence[str]) -> ApiError:
    return invalid(
        f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(idents)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _ids_are_unique(request: Request) -> ApiError | None:
    idents = [b.get("id") for m in request.messages for b in blocks_of(m) if b.get("type") == "tool_use"]
    return None if len(idents) == len(set(idents)) else invalid("messages: `tool_use` ids must be unique")


def _server_tools_stay_together(request: Request) -> ApiError | None:
    for i, m in enumerate(request.messages):
        calls = {b.get("id") for b in blocks_of(m) if b.get("type") in ("server_tool_use", "mcp_tool_use")}
        results = [b for b in blocks_of(m) if str(b.get("type")).endswith("_tool_result") and "tool_use_id" in b]
        for block in results:
            if block["tool_use_id"] not in calls:
                return invalid(
                    f"messages.{i}: unexpected `tool_use_id` found in `{block['type']}` blocks: "
                    f"{block['tool_use_id']}. Each `{block['type']}` block must have a corresponding `server_tool_use` "
                    "block before it."
                )
        last = i == len(request.messages) - 1
        lost = calls - {block["tool_use_id"] for block in results}
        if lost and not last:
            return invalid(
                f"messages.{i}: `server_tool_use` ids were found without a corresponding result block: "
                f"{', '.join(sorted(map(str, lost)))}."
            )
    return None


def _tools_are_defined(request: Request) -> ApiError | None:
    types = {kind for m in request.messages for kind in _types(m)}
    if types & {"tool_use", "tool_result"} and not request.body.get("tools"):
        return invalid("Requests which include `tool_use` or `tool_result` blocks must define tools.")
    return None


def _ends_with_user(request: Request) -> ApiError | None:
    last = request.messages[-1]
    if last["role"] != "assistant" or PREFILLS.search(request.model):
        content = last.get("content")
        if last["role"] == "assistant" and isinstance(content, str) and content != content.rstrip():
            return invalid("messages: final assistant content cannot end with trailing whitespace")
        return None
    if any(str(kind).startswith("server_tool") for kind in _types(last)):
        return None  # a turn that was paused goes on
    return invalid(
        "This model does not support assistant message prefill. The conversation must end with a user message."
    )


def _limit_is_valid(request: Request) -> ApiError | None:
    limit = request.body.get("max_tokens")
    if request.counting:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        return invalid("max_tokens: Input should be greater than or equal to 0")
    if request.max_output is not None and limit > request.max_output:
        return invalid(
            f"max_tokens: {limit} > {request.max_output}, which is the maximum allowed number of output tokens for "
            f"{request.model}"
        )
    thinking = request.body.get("thinking") or {}
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled":
        return None
    if not isinstance(budget, int) or budget < MIN_BUDGET:
        return invalid(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_BUDGET}")
    return None if limit > budget else invalid("`max_tokens` must be greater than `thinking.budget_tokens`")


def _marks_are_few(request: Request) -> ApiError | None:
    marks = _marks([request.body.get(key) for key in ("tools", "system", "messages")])
    marks += "cache_control" in request.body
    if marks <= MAX_MARKS:
        return None
    return invalid(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {marks}.")


def _marks(value: Json) -> int:
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, dict):
        return 0
    return bool(value.get("cache_control")) + _marks(value.get("content"))


def _thinking_comes_first(request: Request) -> ApiError | None:
    """In the open tool loop of models whose thinking is enabled."""
    if (request.body.get("thinking") or {}).get("type") != "enabled":
        return None
    turns = list(_turns(request))
    loop = [blocks for place, role, blocks in turns if role == "assistant"][-1:]
    types = [block.get("type") for blocks in loop for _, block in blocks]
    answered = any(block.get("type") == "tool_result" for _, block in turns[-1][2])
    if not types or not answered or types[0] in THINKING:
        return None
    path = next(path for blocks in loop for path, _ in blocks)
    if any(kind in THINKING for kind in types):
        return invalid(
            f"{path}.type: If an assistant message contains any thinking blocks, the first block must be `thinking` or "
            f"`redacted_thinking`. Found `{types[0]}`."
        )
    return invalid(
        f"{path}.type: Expected `thinking` or `redacted_thinking`, but found `{types[0]}`. When `thinking` is enabled, "
        "a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and "
        "`tool_result` blocks)."
    )


def _thinking_is_unmodified(request: Request) -> ApiError | None:
    """Signatures of the simulator show the block itself and, on models that bind it, all that stood before it."""
    thinking = request.body.get("thinking") or {}
    binding = thinking.get("block_binding") or {}
    drops = binding.get("prefix_mismatch_behavior") == "drop_block" and request.may(CONTROLS)
    for i, m in enumerate(request.messages):
        for k, block in enumerate(blocks_of(m)):
            signature = str(block.get("signature", ""))
            if block.get("type") != "thinking" or not signature.startswith(SIGNED):
                continue
            text, prefix = sign(request.body, i, block.get("thinking"))[len(SIGNED) :].split(".")
            if signature[len(SIGNED) :].split(".")[0] != text:
                return invalid(f"messages.{i}.content.{k}: Invalid `signature` in `thinking` block")
            if BINDING_MODEL.search(request.model) and not drops and not signature.endswith(prefix):
                return invalid(
                    f"messages.{i}.content.{k}: Invalid `signature` in `thinking` block. The block is bound to a "
                    "different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires the '
                    "`thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
                )
    return None


def sign(body: Body, place: int, text: Json) -> str:
    """The signature of a thinking block in the message at `place`: of the block, and of what stands before it. Marks of
    caching do not count."""
    before = [_unmarked(body.get(key)) for key in ("system", "tools")]
    before.append(_unmarked(list(body["messages"][:place])))
    return f"{SIGNED}{_digest(text)}.{_digest(before)}"


def _unmarked(value: Json) -> Json:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}


def _digest(value: Json) -> str:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()


def _sampling_is_not_set(request: Request) -> ApiError | None:
    """Since the version of October 2026, even at its default."""
    found = next((name for name in SAMPLING if name in request.body), None)
    old = request.version < STRICT_VERSION
    return None if found is None or old else invalid(f"{found}: Extra inputs are not permitted")


def _blocks_stand_where_they_may(request: Request) -> ApiError | None:
    """Since the version of October 2026: documents and citations."""
    if request.version < STRICT_VERSION:
        return None
    for i, m in enumerate(request.messages):
        for k, block in enumerate(blocks_of(m)):
            if m["role"] == "assistant" and block.get("type") == "document":
                return invalid(f"messages.{i}.content.{k}: `document` blocks are not permitted in `assistant` messages")
            if m["role"] == "user" and block.get("type") == "text" and block.get("citations"):
                return invalid(
                    f"messages.{i}.content.{k}.text.citations: citations are not permitted in `user` messages"
                )
    return None


def _can_be_counted(request: Request) -> ApiError | None:
    """The counter runs no tool and fetches nothing."""
    if not request.counting:
        return None
    for i, tool in enumerate(request.body.get("tools") or ()):
        kind = str(tool.get("type") or "custom")
        if kind.startswith(SERVER_TOOLS):
            return invalid(f"tools.{i}: server tools are not supported by the token counting endpoint")
    for i, m in enumerate(request.messages):
        for k, block in enumerate(blocks_of(m)):
            source = block.get("source") or {}
            if block.get("type") in ("image", "document") and source.get("type") in ("url", "file"):
                text = f"messages.{i}.content.{k}.source: `{source['type']}` sources are not supported by the token "
                return invalid(text + "counting endpoint")
    return None


CHECKS: tuple[Check, ...] = (
    _fields_are_known,
    _has_messages,
    _types_are_right,
    _roles_are_valid,
    _contents_are_valid,
    _systems_stand_right,
    _results_answer_calls,
    _ids_are_unique,
    _server_tools_stay_together,
    _tools_are_defined,
    _ends_with_user,
    _limit_is_valid,
    _marks_are_few,
    _thinking_comes_first,
    _thinking_is_unmodified,
    _sampling_is_not_set,
    _blocks_stand_where_they_may,
    _can_be_counted,
)
