"""The simulator's count of a prompt of the Responses API is the proxy's own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.apis.openai_responses import API
from proxy.fit.plan import start
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.simulator.openai_responses.counting import count_prompt
from proxy.tokens.meter import meter_for
from tests.makers import ladder
from tests.tokens.remembering import Remembering

ASKED = {"role": "user", "content": "How deep may she lie?"}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA" + "x" * 1500}
CALLS = [{"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": '{"a": 1}'} for i in range(2)]
OUTPUTS = [{"type": "function_call_output", "call_id": f"c{i}", "output": "six metres"} for i in range(2)]


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "hello"},
        {"input": [ASKED, *CALLS, *OUTPUTS], "instructions": "Be brief."},
        {"input": [ASKED, THOUGHT, *CALLS, *OUTPUTS], "model": "gpt-5.2"},
        {"input": [THOUGHT, {**THOUGHT, "encrypted_content": None}, ASKED], "model": "gpt-5.6"},
        {"input": [THOUGHT, ASKED, {"type": "reasoning", "id": "rs_1", "summary": []}], "model": "o4-mini"},
        {"input": [{"type": "compaction", "encrypted_content": "gAAAA" + "x" * 3000}, ASKED]},
        {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}], "tool_choice": "required"},
    ],
)
def test_it_counts_what_the_proxy_counts(fields: dict[str, Any]) -> None:
    body = {"model": "gpt-4o", **fields}
    prompt = API.request.parse(msgspec.json.encode(body))
    meter = meter_for(prompt, prompt.model, Remembering())
    assert count_prompt(body) == start(prompt, ladder(), Facts(Window(10**6), meter)).prompt


def test_what_a_compaction_stands_for_costs_nothing() -> None:
    sealed = {"type": "compaction", "encrypted_content": "gAAAA" + "x" * 3000}
    assert count_prompt({"model": "m", "input": [ASKED, sealed]}) == count_prompt({"model": "m", "input": [sealed]})
