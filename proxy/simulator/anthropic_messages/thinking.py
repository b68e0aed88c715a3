"""Thinking in requests of the Messages API: which kind a model takes, where it stands, and what it is bound to.

Thinking blocks carry a signature of the simulator's own, which shows what stood before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.simulator.anthropic_messages.request import Body, Check, Request, blocks_of, expected_tags, invalid, turns
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json

KINDS = ("adaptive", "between_tools", "disabled", "enabled")
SIM = "claude-sim"  # models for tests: they take every kind
ADAPTIVE_MODEL = re.compile(
    r"(?:opus|sonnet|haiku)-4-(?:[6-9]|1\d)(?!\d)|(?:opus|sonnet|haiku)-[5-9]|fable|mythos|sim-"
)
ADAPTIVE_ONLY = re.compile(r"(?:opus|sonnet|haiku)-(?:4-(?:[7-9]|1\d)(?!\d)|[5-9])|fable|mythos")
ALWAYS = re.compile(r"fable|mythos|opus-5-[5-9]")  # they think in any case
BINDING_MODEL = re.compile(r"claude-(?:fable|mythos)-5[.-][1-9]|claude-(?:opus|sonnet)-5[.-]5|sim-binding")
CONTROLS = "thinking-binding-controls-"  # a beta
THINKING = ("thinking", "redacted_thinking")
SIGNED = "sim"  # the beginning of a signature of the simulator's
MIN_BUDGET = 1024
NONE = "0"  # of a block before which no other one stood
OTHER_PREFIX, OTHER_MODEL = "prefix_binding_mismatch", "model_binding_mismatch"
MISSING = " The `thinking` block that preceded this one when it was created is missing from this request."
BOUND = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires the '
    "`thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
)


def kind_of(request: Request) -> str:
    """The kind of thinking that a request asks for; empty where it says nothing."""
    return str((request.body.get("thinking") or {}).get("type") or "")


def _kind_is_supported(request: Request) -> ApiError | None:
    kind, model = kind_of(request), request.model
    if not request.body.get("thinking"):
        return None
    if kind not in KINDS:
        return expected_tags("thinking", kind, KINDS)
    if SIM in model:
        return None
    if kind == "enabled" and ADAPTIVE_ONLY.search(model):
        return invalid(
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    if kind == "disabled" and ALWAYS.search(model):
        return invalid(
            '"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when not '
            'specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.'
        )
    if kind in ("adaptive", "between_tools") and not ADAPTIVE_MODEL.search(model):
        return invalid("adaptive thinking is not supported on this model")
    return None


def _budget_is_valid(request: Request) -> ApiError | None:
    if kind_of(request) != "enabled":
        return None
    budget, limit = request.body["thinking"].get("budget_tokens"), request.body.get("max_tokens")
    if not isinstance(budget, int) or budget < MIN_BUDGET:
        return invalid(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_BUDGET}")
    if request.counting or (isinstance(limit, int) and limit > budget):
        return None
    return invalid("`max_tokens` must be greater than `thinking.budget_tokens`")


def _binding_is_controlled(request: Request) -> ApiError | None:
    """What happens to blocks that are bound elsewhere may only be said with a beta."""
    if "block_binding" not in (request.body.get("thinking") or {}) or request.may(CONTROLS):
        return None
    return invalid(f"thinking.{kind_of(request)}.block_binding: Extra inputs are not permitted")


def _thinking_comes_first(request: Request) -> ApiError | None:
    """In the open tool loop of models whose thinking is enabled."""
    if (request.body.get("thinking") or {}).get("type") != "enabled":
        return None
    told = list(turns(request))
    loop = [blocks for place, role, blocks in told if role == "assistant"][-1:]
    types = [block.get("type") for blocks in loop for _, block in blocks]
    answered = any(block.get("type") == "tool_result" for _, block in told[-1][2])
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


@dataclass(frozen=True, slots=True)
class Signature:
    """What a signature of the simulator says: digests of the block, of what stood before it, of the thinking block
    before it, and of its model."""

    text: str
    prefix: str
    preceding: str
    model: str

    def __str__(self) -> str:
        """As it is sent."""
        return SIGNED + ".".join((self.text, self.prefix, self.preceding, self.model))


def sign(body: Body, place: int, text: Json) -> str:
    """The signature of a thinking block in the message at `place`."""
    return str(_signature(body, place, text))


def _signature(body: Body, place: int, text: Json) -> Signature:
    """Marks of caching, and tools that are loaded later, are not a part of what stands before."""
    tools = [tool for tool in body.get("tools") or () if not tool.get("defer_loading")]
    before = [_unmarked(part) for part in (body.get("system"), tools, list(body["messages"][:place]))]
    earlier = _earlier(body, place)
    return Signature(_digest(text), _digest(before), earlier[-1] if earlier else NONE, _digest(body["model"]))


def _earlier(body: Body, place: int) -> list[str]:
    """Digests of the thinking blocks before a message."""
    before = [block for m in body["messages"][:place] for block in blocks_of(m)]
    return [_digest(block.get("signature")) for block in before if block.get("type") == "thinking"]


def _parsed(signature: str) -> Signature | None:
    """A signature of the simulator's own."""
    parts = signature.removeprefix(SIGNED).split(".")
    return Signature(*parts) if signature.startswith(SIGNED) and len(parts) == 4 else None


def _signed(body: Body) -> Iterator[tuple[str, Signature, Signature, int]]:
    """Path, signature, the signature that it should have, and place of each block that the simulator signed."""
    for i, m in enumerate(body["messages"]):
        for k, block in enumerate(blocks_of(m)):
            found = _parsed(str(block.get("signature", ""))) if block.get("type") == "thinking" else None
            if found is not None:
                yield f"messages.{i}.content.{k}", found, _signature(body, i, block.get("thinking")), i


def _thinking_is_unmodified(request: Request) -> ApiError | None:
    for path, found, right, _ in _signed(request.body):
        if found.text != right.text:
            return invalid(f"{path}: Invalid `signature` in `thinking` block")
    return None


def _thinking_is_bound(request: Request) -> ApiError | None:
    """On models that bind it, to all that stood before it. A block of another model is left out without an error."""
    drops = ((request.body.get("thinking") or {}).get("block_binding") or {}).get("prefix_mismatch_behavior")
    if drops == "drop_block" or not BINDING_MODEL.search(request.model):
        return None
    for path, found, right, place in _signed(request.body):
        if found.model == right.model and found.prefix != right.prefix:
            lost = found.preceding != NONE and found.preceding not in _earlier(request.body, place)
            return invalid(f"{path}: {BOUND}{MISSING if lost else ''}")
    return None


def transformations(body: Body) -> list[Mapping[str, Any]]:
    """The thinking blocks of a valid request that its model does not read, as an answer reports them. One that is
    bound to another conversation takes all later ones with it."""
    if not BINDING_MODEL.search(str(body["model"])):
        return []
    found: list[Mapping[str, Any]] = []
    broken = False
    for path, said, right, _ in _signed(body):
        other = said.model != right.model
        broken = broken or (not other and said.prefix != right.prefix)
        if other or broken:
            reason = OTHER_MODEL if other else OTHER_PREFIX
            found.append({"type": "thinking_dropped", "path": path, "reason": reason})
    return found


def _unmarked(value: Json) -> Json:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}


def _digest(value: Json) -> str:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()


CHECKS: tuple[Check, ...] = (
    _binding_is_controlled,
    _kind_is_supported,
    _budget_is_valid,
    _thinking_comes_first,
    _thinking_is_unmodified,
    _thinking_is_bound,
)
