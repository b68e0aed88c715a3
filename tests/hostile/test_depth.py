"""How deep results of tools are cut: to a share of the window, not to a fixed size, and seldom (W6, W7, W27)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.request.planned import arrived, prepared, services

LINES = {200_000: 1_000, 50_000: 330, 8_192: 60}  # of each file, of 15 tokens: a tenth of the window and less


def run_of(rounds: int, lines: int) -> list[dict[str, Any]]:
    """A run that read so many files."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Mend the build."}]
    for number in range(rounds):
        function = {"name": "read", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "\n".join(f"value_{number}_{line} = compute(step_{line}, {line * 7919})" for line in range(lines))
        said.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return said


@pytest.mark.parametrize("window", LINES)
def test_W6_W7_W27_a_cut_fills_the_window_leaves_the_newest_result_whole_and_stays(window: int) -> None:
    planner = services().gateway.default.planner
    before: list[Any] = []
    cuts = moved = 0
    for rounds in range(8, 26):
        messages = run_of(rounds, LINES[window])
        body = json.dumps({"model": "gpt-4.1", "messages": messages, "max_tokens": min(4_000, window // 16)}).encode()
        context = arrived(body, window=window)
        sent = json.loads(prepared(planner, context))["messages"]
        assert context.planned is not None
        if context.planned.plan is None or not context.planned.plan.changed:
            before = sent
            continue
        draft, cuts = context.planned.plan.draft, cuts + 1
        assert 0.4 * window <= draft.prompt <= window, (rounds, draft.prompt)  # not a third of it, or less
        assert sent[-1] == messages[-1]  # the newest result is whole
        moved += sent[: len(before)] != before
        before = sent
    assert cuts >= 8 and moved <= cuts / 2  # most requests repeat the whole of the one before
