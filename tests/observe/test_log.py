"""One line an outcome: what stands in it, for whom, and what it never holds."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.model.outcome import Outcome
from proxy.model.trace import Trace
from proxy.observe import log
from proxy.observe.log import json_line, lost_json, lost_text, make_access_log, printable, text_line
from tests.counted_work import calls_of
from tests.observe.outcomes import FITTED, PASSED


def told(outcome: Outcome) -> dict[str, Any]:
    line = json_line(outcome, time.time())
    assert line.endswith("}\n") and line.count("\n") == 1
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_machine_reads_every_figure() -> None:
    found = told(FITTED)
    assert abs(found.pop("time") - time.time()) < 60
    assert found == {
        "endpoint": "chat",
        "path": "/v1/chat/completions",
        "result": "fitted",
        "status": 200,
        "stream": False,
        "attempts": 1,
        "own_ms": 1.23,
        "upstream_ms": 250.0,
        "mode": "fit",
        "ladder": "default",
        "model": "gpt-4",
        "window": 8192,
        "prompt": 7793,
        "prompt_sent": 3691,
        "reserve": 3000,
        "max_tokens": 3000,
        "messages": 144,
        "messages_sent": 69,
        "steps": "prune_history;-4102",
        "count": "exact",
        "usage": 3691,
    }


def test_what_is_not_known_is_left_out() -> None:
    always = {"time", "endpoint", "path", "result", "status", "stream", "attempts", "own_ms"}
    assert told(PASSED).keys() == always | {"upstream_ms"}


def test_what_was_planned_what_else_was_asked_and_whose_request_it_was_are_told() -> None:
    observed = replace(FITTED, mode="observe", notes=(), planned=FITTED.notes, stream=True, attempts=3)
    outcome = replace(observed, request_id="req_1", extra_calls=2, extra_tokens=1_234, extra_seconds=0.5)
    found = told(outcome)
    assert (found["planned"], found["mode"], found["stream"], found["attempts"]) == (
        "prune_history;-4102",
        "observe",
        True,
        3,
    )
    assert (found["extra_calls"], found["extra_tokens"], found["extra_ms"], found["request_id"]) == (
        2,
        1_234,
        500.0,
        "req_1",
    )
    assert "steps" not in found
    assert text_line(outcome, 1.0)[9:] == (
        "200 fitted chat /v1/chat/completions stream mode=observe model=gpt-4 window=8,192 3,691/5,192 tokens "
        "(of 7,793) messages=69/144 planned=[prune_history;-4102] attempts=3 extra=2 calls, 1,234 tokens, 0.5s "
        "own=1.2ms upstream=250ms id=req_1\n"
    )


def test_why_a_request_was_not_planned_is_told() -> None:
    outcome = replace(PASSED, result="not_understood", unplanned="it is empty")
    assert told(outcome)["unplanned"] == "it is empty"
    assert " [it is empty] " in text_line(outcome, 1.0)


def test_why_claimed_messages_stay_is_told_with_how_many() -> None:
    outcome = replace(FITTED, kept=(("asked again", 1), ("order", 2)))
    assert told(outcome)["kept"] == "asked again 1, order 2"
    assert " kept=[asked again 1, order 2] " in text_line(outcome, 1.0)
    assert "kept" not in told(FITTED) and "kept" not in text_line(FITTED, 1.0)


def test_a_switch_and_a_refusal_are_told() -> None:
    found = told(replace(FITTED, model_sent="gpt-4o", refusals=("openai_old", "vllm"), healed=True, result="healed"))
    assert (found["model_sent"], found["refused"], found["result"]) == ("gpt-4o", "openai_old, vllm", "healed")


def test_people_read_used_of_budget_and_messages_kept() -> None:
    assert text_line(FITTED, 1.0)[9:] == (
        "200 fitted chat /v1/chat/completions model=gpt-4 window=8,192 3,691/5,192 tokens (of 7,793) messages=69/144 "
        "[prune_history;-4102] own=1.2ms upstream=250ms\n"
    )
    free = replace(FITTED, prompt_sent=7574, reply_asked=None, reply_sent=None)
    assert " 7,574/8,192 tokens " in text_line(free, 1.0), "the reply takes what is left"
    assert " 5,192/5,192 tokens " in text_line(replace(free, prompt_sent=5192), 1.0)
    assert " 3,691/6,992 tokens " in text_line(replace(FITTED, reply_sent=1200), 1.0)
    separate = replace(FITTED, reserve=0, reply_sent=32_000)  # the reply takes no room of the window
    assert " 3,691/8,192 tokens " in text_line(separate, 1.0)
    assert text_line(PASSED, 1.0)[9:] == "200 passed passthrough /v1/models own=0.1ms upstream=4ms\n"
    switched = text_line(replace(FITTED, model_sent="gpt-4o", refusals=("vllm",)), 1.0)
    assert " model=gpt-4->gpt-4o " in switched and " refused=vllm " in switched


@pytest.mark.parametrize("line", [json_line, text_line])
def test_a_name_that_a_client_sent_is_safe_for_a_terminal_and_short(line: Any) -> None:
    found = line(replace(FITTED, model="a\x1b[31m\nb" + "x" * 5_000, model_sent="\u2028\x9b\ud800"), 1.0)
    assert found.count("\n") == 1
    assert "\x1b" not in found and "\u2028" not in found and "\x9b" not in found
    assert len(found) < 700


def test_a_name_that_can_be_printed_is_not_changed() -> None:
    assert printable("gpt-4o") == "gpt-4o"
    assert printable("ümlaut ⚓") == "ümlaut ⚓"
    assert printable("a\tb", 2) == "a?"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("style", "out", "begins"),
    [
        ("auto", io.StringIO(), r"\{"),
        ("auto", Terminal(), r"\d\d:\d\d:\d\d "),
        ("json", Terminal(), r"\{"),
        ("text", io.StringIO(), r"\d\d:\d\d:\d\d "),
    ],
)
def test_people_at_a_terminal_get_text_and_all_others_json(style: str, out: io.StringIO, begins: str) -> None:
    write = make_access_log(style, out)
    write(PASSED)
    write.close()
    assert re.match(begins, out.getvalue())
    assert out.getvalue().count("\n") == 1


def test_it_goes_to_standard_output_where_nothing_else_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    write = make_access_log("json")
    write(PASSED)
    write.close()
    assert json.loads(capfd.readouterr().out)["endpoint"] == "passthrough"


def test_without_a_standard_output_nothing_is_told_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    write = make_access_log()
    write(PASSED)
    write.close()


def test_lost_lines_are_told_in_the_same_shape() -> None:
    assert json.loads(lost_json(3))["lost_lines"] == 3
    assert lost_text(3_000).endswith(" 3,000 lines were lost\n")


def test_a_line_costs_little(tmp_path: Any) -> None:
    """The aim is 10 us."""
    with (tmp_path / "log").open("w") as out:
        write = make_access_log("json", out)
        write(FITTED)
        assert calls_of(lambda: write(FITTED)) < 200
        write.close()


def test_an_event_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.event("the cache fails", server="h:1", trouble="late")
    log.event("nothing more")
    first, second = capsys.readouterr().err.splitlines()
    assert first[9:] == "plimsoll: the cache fails server=h:1 trouble=late"
    assert second[9:] == "plimsoll: nothing more"


def test_events_are_json_where_the_log_is(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        for style, begins in (("json", "{"), ("auto", "{"), ("text", "0123456789")):
            log.set_event_style(style)
            log.event('it "fails"', server="h:1", count=3, what=ValueError("x"))
            told = capsys.readouterr().err
            assert told[0] in begins and told.count("\n") == 1
            if begins == "{":
                found = json.loads(told)
                assert abs(found.pop("time") - time.time()) < 60
                assert found == {"event": 'it "fails"', "server": "h:1", "count": 3, "what": "x"}
    finally:
        log.set_event_style("text")


def test_an_event_that_nobody_can_read_is_nobodys_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    log.event("no standard error")
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out:
        monkeypatch.setattr(sys, "stderr", out)
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 65536)
        except BlockingIOError:
            os.set_blocking(writer, True)
        log.event("the pipe is full")  # it returns: nobody reads the pipe
        os.close(reader)
        log.event("the reader is gone")
    log.event("the stream is closed")


def test_a_traced_request_has_the_id_of_its_trace() -> None:
    traced = replace(FITTED, trace=Trace("c" * 32, "a" * 16, "POST", 1, 2))
    assert told(traced)["trace_id"] == "c" * 32 and text_line(traced, 1.0).endswith(f" trace={'c' * 32}\n")
    assert "trace_id" not in told(FITTED) and "trace=" not in text_line(FITTED, 1.0)
