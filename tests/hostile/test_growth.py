"""Texts made to be slow to read: the work of planning grows with their length, never with its square."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest

from proxy.apis.openai_chat import request
from proxy.cache.counts import LocalCounts
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.tokens.meter import meter_for
from tests.makers import assistant, system, tool_round, user

FEW, TIMES, MOST = 400, 4, 6.0  # four times the text may take six times the work, and a square would take sixteen
WINDOW = 800
QUESTION = user("What about h7 and words?")
LETTERS = str.maketrans("0123456789", "abcdefghij")
LADDER = load_rules(None).ladders["default"]

SHAPES: Mapping[str, Callable[[int], str]] = {
    "nested tags": lambda n: "\n".join(
        [*(f"<t{i}>\nwords {i}" for i in range(n)), *(f"</t{i}>" for i in reversed(range(n)))]
    ),
    "tags that never close": lambda n: "\n".join(
        [*(f"<t{i}>" for i in range(n)), *("</x>" for _ in range(n)), "</t0>"]
    ),
    "headings in tags": lambda n: "\n".join(
        [*(f"<t{i}>\n# h{i}" for i in range(n)), *(f"</t{i}>" for i in reversed(range(n)))]
    ),
    "end tags in open tags": lambda n: "\n".join([*(f"<t{i}>" for i in range(n)), *["<q>\n</q>\n</q>"] * n, "</t0>"]),
    "fences": lambda n: "\n".join(f"name{i}.py\n```\nx\n```" for i in range(n)),
    "headings": lambda n: "\n\n".join(f"{'#' * (1 + i % 6)} h{i} words" for i in range(n)),
    "nested definitions": lambda n: "\n".join(" " * (i % 90) + f"def f{i}(x):" for i in range(n)),
    "definitions with gaps": lambda n: "\n\n\n".join(f"  def f{i}(x):" for i in range(n)),
    "equal lines": lambda n: "one two three\n" * n,
    "equal lines with names": lambda n: "\n".join(f"the item host-{i % 20}-{i // 20} is down" for i in range(n)),
    "words of one beginning": lambda n: "\n".join("zqxwv" + f"{i:05}".translate(LETTERS) for i in range(n)),
}


def talk(text: str, place: str) -> list[dict[str, Any]]:
    """A conversation with this text in one of its messages, and a question."""
    return {
        "user": [user(f"{text}\n\n{QUESTION['content']}")],
        "older": [user("hi"), assistant("hello"), user(text), assistant("ok"), QUESTION],
        "system": [system(f"You are kind.\n\nBe short.\n\n{text}"), QUESTION],
        "tool": [QUESTION, *tool_round("c", text, "read", '{"path": "a.txt"}')],
    }[place]


def steps(messages: list[dict[str, Any]]) -> int:
    """How many lines of Python planning these messages runs."""
    prompt = request.parse(json.dumps({"model": "gpt-4o", "max_tokens": 100, "messages": messages}).encode())
    meter = meter_for(prompt, prompt.model, LocalCounts())
    meter.costs(prompt.messages)
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        plan(prompt, LADDER, Facts(Window(WINDOW), meter))
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("place", ["user", "older", "system", "tool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_length(shape: str, place: str) -> None:
    few, many = (steps(talk(SHAPES[shape](n), place)) for n in (FEW, TIMES * FEW))
    assert many <= MOST * few
