"""Validation of requests of the Messages API, in Anthropic's wording: one check per function.

Thinking and context management have modules of their own. It does not check the length of a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from proxy.simulator import check
from proxy.simulator.anthropic_messages import context, thinking, tools
from proxy.simulator.anthropic_messages.request import (
    OLD,
    Check,
    Message,
    Request,
    blocks_of,
    expected_tags,
    field_required,
    invalid,
    types_of,
)
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json
from proxy.simulator.shapes import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, Shape, wrong_type

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
SERVER_RESULTS = (
    *("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution"),
    *("tool_search", "advisor"),
)
SERVER_TOOLS = ("web_search_", "web_fetch_", "code_execution_")
MAX_MARKS = 4
PREFILLS = re.compile(r"claude-(?:[a-z]+-4-5|[23])|" + OLD.pattern)
SYSTEM_MODEL = re.compile(r"claude-(?:opus-4-[89]|[a-z]+-[5-9]|sim)")
MAX_MESSAGES = 100_000
# The fields of messages; those of a system message need a beta.
MESSAGE_FIELDS = frozenset(("role", "content"))
SYSTEM_FIELDS: Mapping[str, str] = {
    "clear_at": "mid-conversation-system-clear-at-",
    "output_config": "mid-conversation-output-config-",
}
# The types of blocks, with the fields that each requires.
BLOCKS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source",),
    "search_result": (),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "server_tool_use": ("id",),
    "mcp_tool_use": ("id",),
    "mcp_tool_result": ("tool_use_id",),
    **{f"{tool}_tool_result": ("tool_use_id",) for tool in SERVER_RESULTS},
    **dict.fromkeys(("container_upload", "compaction", "tool_addition", "tool_removal", "fallback"), ()),
}
SYSTEM_BLOCKS = ("text", "tool_addition", "tool_removal")


def validate(request: Request) -> ApiError | None:
    """The error of the first check that fails; None for a valid request."""
    return check.validate(request, CHECKS)


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
    if len(found) > MAX_MESSAGES:
        text = f"messages: List should have at most {MAX_MESSAGES} items after validation, not {len(found)}"
        return invalid(text)
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
LIMIT: Shape = {"type": TEXT, "value": INTEGER}
EDIT: Shape = {"type": TEXT, "trigger": LIMIT, "keep": (TEXT, LIMIT), "clear_at_least": LIMIT, "exclude_tools": [TEXT]}
REQUEST = {
    "messages": [{"role": TEXT, "content": (TEXT, [BLOCK])}],
    "system": (TEXT, [BLOCK]),
    "tools": [{"type": TEXT, "name": TEXT, "description": TEXT, "input_schema": OBJECT}],
    "tool_choice": {"type": TEXT, "name": TEXT, "disable_parallel_tool_use": BOOLEAN},
    "thinking": {"type": TEXT, "budget_tokens": INTEGER, "block_binding": OBJECT},
    "output_config": {"format": {"type": TEXT, "schema": OBJECT}, "effort": TEXT},
    "output_format": {"type": TEXT, "schema": OBJECT},
    "context_management": {"edits": [EDIT]},
    "compaction": {"type": TEXT, "instructions": TEXT},
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
    if request.messages[0]["role"] == "system" and not _is_directive(request.messages[0]):
        return invalid(
            "messages.0: role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool "
            "result; use the top-level 'system' parameter for the initial system prompt"
        )
    first = next((m for m in request.messages if not _is_directive(m)), {"role": "user"})
    if first["role"] != "user" and types_of(first)[:1] != ["compaction"]:
        return invalid('messages: first message must use the "user" role')
    return None


def _messages_have_known_fields(request: Request) -> ApiError | None:
    for i, m in enumerate(request.messages):
        for name in m.keys() - MESSAGE_FIELDS:
            beta = SYSTEM_FIELDS.get(name, "") if m["role"] == "system" else ""
            if not beta or not request.may(beta):
                return invalid(f"messages.{i}.{name}: Extra inputs are not permitted")
    return None


def _blocks_are_known(request: Request) -> ApiError | None:
    """Of a system message, text and changes of tools alone."""
    for i, m in enumerate(request.messages):
        known = SYSTEM_BLOCKS if m["role"] == "system" else tuple(BLOCKS)
        for k, block in enumerate(blocks_of(m)):
            kind, path = str(block.get("type")), f"messages.{i}.content.{k}"
            if kind not in known:
                return expected_tags(path, kind, known)
            missing = next((name for name in BLOCKS[kind] if block.get(name) is None), None)
            if missing is not None:
                return field_required(f"{path}.{kind}.{missing}")
    return None


def _is_directive(message: Message) -> bool:
    """Whether a system message says how to write from here on, and nothing else: it may stand anywhere."""
    return message["role"] == "system" and message.get("content") in ([], None) and bool(message.get("output_config"))


def _systems_stand_right(request: Request) -> ApiError | None:
    """Runs of several system messages count as one."""
    messages = request.messages
    for i, m in enumerate(messages):
        if m["role"] != "system" or _is_directive(m):
            continue
        behind = next((n for n in messages[i + 1 :] if n["role"] != "system"), None)
        before = next((n for n in reversed(messages[:i]) if n["role"] != "system"), {"role": "user"})
        if behind is not None and behind["role"] != "assistant":
            return invalid(
                f"messages.{i}: role 'system' must precede an 'assistant' message or end the array; the directive-only "
                "form (content: [] with output_config) is accepted at any position"
            )
        if before["role"] == "assistant" and not str((types_of(before) or [""])[-1]).endswith("_tool_result"):
            return invalid(
                f"messages.{i}: role 'system' must follow a 'user' message or an 'assistant' message ending in a "
                "server tool result"
            )
    return None


def _contents_are_valid(request: Request) -> ApiError | None:
    for i, m in enumerate(request.messages):
        content = m.get("content")
        if _is_directive(m):
            continue
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


def _ends_with_user(request: Request) -> ApiError | None:
    last = request.messages[-1]
    if last["role"] != "assistant" or PREFILLS.search(request.model):
        texts = [str(block.get("text")) for block in blocks_of(last)[-1:] if block.get("type") == "text"]
        if last["role"] == "assistant" and texts and not texts[0].strip():
            return invalid("messages: text content blocks must be non-empty")
        if last["role"] == "assistant" and texts and texts[0] != texts[0].rstrip():
            return invalid("messages: final assistant content cannot end with trailing whitespace")
        return None
    if any(str(kind).startswith("server_tool") for kind in types_of(last)):
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
    return None


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
    if request.body.get("mcp_servers"):
        return invalid("mcp_servers: the MCP connector is not supported by the token counting endpoint")
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
    _messages_have_known_fields,
    _contents_are_valid,
    _blocks_are_known,
    _systems_stand_right,
    *tools.CHECKS,
    _ends_with_user,
    _limit_is_valid,
    _marks_are_few,
    *thinking.CHECKS,
    *context.CHECKS,
    _sampling_is_not_set,
    _blocks_stand_where_they_may,
    _can_be_counted,
)
