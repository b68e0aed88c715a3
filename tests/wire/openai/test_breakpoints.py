"""`prompt_cache_breakpoint` marks of messages that are not sent."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis.openai_chat import request as chat
from proxy.apis.openai_responses import request as responses
from proxy.fit.plan import plan
from proxy.model.plan import Plan
from proxy.wire.openai.breakpoints import with_breakpoints
from tests.makers import assistant, facts, ladder, prompt, system, user

MARK = {"mode": "explicit"}


def parts(*texts: str, mark: bool = False, kind: str = "text") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": kind, "text": text} for text in texts]
    if mark:
        found[-1]["prompt_cache_breakpoint"] = MARK
    return found


def sent(messages: list[dict[str, Any]], *kept: int) -> list[Any]:
    told = prompt(messages).messages
    return [json.loads(m.raw) for m in with_breakpoints(told, [told[i] for i in kept], ("content",))]


def test_the_breakpoint_of_a_dropped_message_moves_to_the_last_one_that_may_carry_it() -> None:
    first = {"role": "user", "content": parts("a", "b")}
    run = [system("s"), first, assistant("x"), {"role": "user", "content": parts("c", mark=True)}, user("d")]
    assert sent(run, 0, 1, 2, 4) == [
        system("s"),
        {"role": "user", "content": parts("a", "b", mark=True)},
        assistant("x"),
        user("d"),
    ]


def test_a_text_alone_has_no_place_for_a_breakpoint() -> None:
    run = [user("a"), {"role": "user", "content": parts("c", mark=True)}, user("d")]
    assert sent(run, 0, 2) == [user("a"), user("d")]


def test_no_message_gets_a_second_breakpoint_and_what_stays_is_not_touched() -> None:
    marked = {"role": "user", "content": parts("a", mark=True)}
    assert sent([marked, marked, user("d")], 0, 2) == [marked, user("d")]
    assert sent([marked, user("d")], 0, 1) == [marked, user("d")]


def test_chat_and_responses_render_it() -> None:
    for api, body in (
        (
            chat,
            {"messages": [{"role": "user", "content": parts("a")}, {"role": "user", "content": parts("c", mark=True)}]},
        ),
        (
            responses,
            {
                "input": [
                    {"role": "user", "content": parts("a", kind="input_text")},
                    {"role": "user", "content": parts("c", mark=True, kind="input_text")},
                ]
            },
        ),
    ):
        told = api.parse(json.dumps({"model": "gpt-5.6", **body}).encode())

        before = plan(told, ladder(), facts(100_000)).before
        made = api.render(told, Plan(before, before.with_blocks(before.blocks[:1])))
        assert json.dumps(MARK).replace(" ", "").encode() in made.replace(b" ", b"")
