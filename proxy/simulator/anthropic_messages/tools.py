"""Calls of tools and their results in requests of the Messages API, in Anthropic's wording: one check per function."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.simulator.anthropic_messages.request import Check, Request, blocks_of, invalid, turns, types_of
from proxy.simulator.check import ApiError


def _results_answer_calls(request: Request) -> ApiError | None:
    waiting: list[str] = []
    asked_at = 0
    for place, role, blocks in turns(request):
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
    types = {kind for m in request.messages for kind in types_of(m)}
    tools = request.body.get("tools")
    if types & {"tool_use", "tool_result"} and not tools:
        return invalid("Requests which include `tool_use` or `tool_result` blocks must define tools.")
    names = {tool.get("name") for tool in tools or ()}
    for i, m in enumerate(request.messages):
        for k, block in enumerate(blocks_of(m)):
            if block.get("type") == "tool_use" and block.get("name") not in names:
                return invalid(f"messages.{i}.content.{k}: tool `{block.get('name')}` is not defined in `tools`")
    return None


CHECKS: tuple[Check, ...] = (
    _results_answer_calls,
    _ids_are_unique,
    _server_tools_stay_together,
    _tools_are_defined,
)
