"""Bounds in bytes: no input makes the proxy work or remember out of proportion to its size."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.hostile.harness import Running, eventually, friendly, running_anew, upstream
from tests.recorder import Recorder

LONG_NAMES = ("/" * 1_000_000, "code" * 50_000, "grok-4" * 40_000, "a.b-" * 100_000, "\u0000\u001b[2J" * 20_000)


@pytest.fixture(scope="module")
def pair(workers: int) -> Iterator[tuple[Running, Recorder]]:
    """A proxy before an upstream that lists one model, and answers everything."""
    with upstream(friendly) as behind, running_anew(behind.url, workers=workers) as proxy:
        for number in range(48):  # so that every worker has seen a bit of everything
            proxy.ask(asked("hi " * 5_000, ("gpt-4o", "gpt-4", "nobodys", "x" * 10_000)[number % 4]))
            proxy.ask(
                asked("What was said? " + "\n" * 300_000, "gpt-4")
                if number % 2
                else tool_run("hi\n" * 100_000, model="gpt-4")
            )
        rests(proxy)
        yield proxy, behind


def rests(proxy: Running) -> None:
    """Waits until it does nothing in the background, such as loading: that would be taken for the work of a test."""

    def resting() -> bool:
        before = proxy.cpu_seconds()
        time.sleep(0.3)
        return proxy.cpu_seconds() - before < 0.05

    eventually(resting)


def asked(text: str = "hi", model: str = "gpt-4o", **more: Any) -> dict[str, Any]:
    """A chat request of one message."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def outcomes(proxy: Running, model: str) -> list[dict[str, Any]]:
    """What its log has of the requests for a model, each with the time at which it was told."""
    return [json.loads(line) for line in list(proxy.lines) if f'"{model}"' in line]


def test_F1_H1_F11_a_name_of_a_megabyte_costs_what_its_bytes_do(pair: tuple[Running, Recorder]) -> None:
    proxy, behind = pair
    for name in LONG_NAMES:
        body = json.dumps(asked("hi", name)).encode()
        idle = proxy.settled_mb()
        with proxy.working(1.0):
            assert proxy.ask(body, timeout=120).status == 200
        assert behind.requests[-1].body == body
        assert proxy.memory_mb(peak=True) - idle < 16 + 4 * len(body) / 2**20


def test_F1_names_too_long_for_a_model_are_one_unknown_model(pair: tuple[Running, Recorder]) -> None:
    proxy, _ = pair
    for name in ("gpt-4o-" + "x" * 200, "claude-" * 40):
        told = proxy.ask(asked("hi", name), path="/inspect/v1/chat/completions").json
        assert told["window"] == 8192 and len(told["model"]) < 60
        assert told["request"]["model"] == name
    assert all(name * 3 not in line for line in proxy.log() for name in ("x" * 50, "claude-"))


def test_H2_names_do_not_fill_the_memory(pair: tuple[Running, Recorder]) -> None:
    proxy, _ = pair
    for number in range(10):
        proxy.ask(asked("hi", f"{number}" * 1_000_000))
    before = proxy.settled_mb()
    for number in range(60):
        proxy.ask(asked("hi", f"{number}/" * 500_000))
    assert proxy.settled_mb() - before < 40  # 60 names are 90 MB


def test_H4_instructions_do_not_fill_the_memory(pair: tuple[Running, Recorder], workers: int) -> None:
    proxy, _ = pair

    def system(number: int) -> dict[str, Any]:
        long = {"role": "system", "content": f"{number} " + "internationalization " * 14_000}
        return {"model": "gpt-4o", "messages": [long, {"role": "user", "content": "hi"}]}

    filled = 120 * workers  # which of them is asked is chance
    for number in range(filled):
        proxy.ask(system(number))
    before = proxy.settled_mb()
    for number in range(filled, filled + 240):
        proxy.ask(system(number))
    assert proxy.settled_mb() - before < 40  # they are 72 MB


def test_H3_what_a_request_waits_for_does_not_wait_for_what_nobody_waits_for(pair: tuple[Running, Recorder]) -> None:
    proxy, _ = pair

    def proven(number: int) -> None:
        words = " ".join(f"{number * 7919 + place * 104729 % 1_000_003:x}" for place in range(30_000))
        assert proxy.ask(asked(words, "gpt-4.1"), timeout=120).status == 200

    def told() -> int:
        """Outcomes of those that were told: each as soon as it is counted."""
        return sum('"gpt-4.1"' in line for line in list(proxy.lines))

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(proven, range(200)))
    others, begun = len(outcomes(proxy, "gpt-4")), time.time()
    assert proxy.ask(asked("near the line " * 1_000, "gpt-4"), timeout=120).status == 200
    eventually(lambda: len(outcomes(proxy, "gpt-4")) > others and told() == 200, 120)
    ended = begun + outcomes(proxy, "gpt-4")[-1]["own_ms"] / 1_000  # what the proxy took: this process may have slept
    times = [outcome["time"] for outcome in outcomes(proxy, "gpt-4.1")]
    waiting = sum(at > begun for at in times)
    assert sum(begun < at <= ended for at in times) <= max(10, waiting // 2)  # not all of those had their turn first


@pytest.mark.parametrize("role", ["tool", "user"])
def test_F4_a_text_of_line_ends_is_bounded_before_it_is_split(pair: tuple[Running, Recorder], role: str) -> None:
    proxy, behind = pair
    ends = "\n" * (4 << 20)
    said = tool_run(ends, model="gpt-4") if role == "tool" else asked(ends, "gpt-4")
    body = json.dumps(said).encode()
    idle = proxy.settled_mb()
    with proxy.working(4.0):
        assert proxy.ask(body, timeout=120).status == 200
    assert len(behind.requests[-1].body) < 1 << 20
    assert proxy.memory_mb(peak=True) - idle < 16 + 4 * len(body) / 2**20  # it was 1,100
    eventually(lambda: proxy.memory_mb() - idle < 100)  # and 324 stayed


def test_F4_of_a_long_result_its_ends_and_what_is_asked_for_stay(pair: tuple[Running, Recorder]) -> None:
    proxy, behind = pair
    lines = [f"line {number} of the log" for number in range(19_000)]
    lines[9_000] = "the harbour pilot is called Ingrid Solberg"
    assert proxy.ask(tool_run("\n".join(lines), "Who is the harbour pilot?", "gpt-4")).status == 200
    sent = json.loads(behind.requests[-1].body)["messages"][-1]["content"]
    assert "Ingrid Solberg" in sent and sent.startswith("line 0 of") and "line 18999 of the log" in sent


@pytest.mark.parametrize("value", ["{}", '{"role":"user","content":"x"}', "[]", "0", '"a"'])
def test_F10_very_many_values_are_not_read(pair: tuple[Running, Recorder], value: str) -> None:
    proxy, behind = pair
    body = b'{"model":"gpt-4o","messages":[' + f"{value},".encode() * ((8 << 20) // (len(value) + 1)) + b"0]}"
    idle = proxy.settled_mb()
    with proxy.working(2.0):
        assert proxy.ask(body, timeout=120).status == 200
    assert behind.requests[-1].body == body
    assert proxy.memory_mb(peak=True) - idle < 16 + 4 * len(body) / 2**20


def test_F10_what_unpacks_to_a_thousand_times_its_size_stays_packed(pair: tuple[Running, Recorder]) -> None:
    proxy, behind = pair
    packed = gzip.compress(json.dumps(asked(" " * (60 << 20))).encode())
    assert len(packed) < 100_000
    idle = proxy.settled_mb()
    with proxy.working(1.0):  # it was 24.8
        assert proxy.ask(packed, headers={"content-encoding": "gzip"}).status == 200
    assert behind.requests[-1].body == packed
    assert proxy.memory_mb(peak=True) - idle < 64


@pytest.mark.parametrize("sign", ["\n", '"', "\U0001f600 text, "])
def test_F4_a_text_of_tens_of_megabytes_takes_four_times_its_size_at_most(
    pair: tuple[Running, Recorder], sign: str
) -> None:
    proxy, behind = pair
    text = sign * ((24 << 20) // len(json.dumps(sign, ensure_ascii=False).encode()) + 1)
    body = json.dumps(tool_run(text, model="gpt-4"), ensure_ascii=False).encode()
    idle = proxy.settled_mb()
    with proxy.working(8.0):
        assert proxy.ask(body, timeout=120).status == 200
    sent = json.loads(behind.requests[-1].body)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][-1]["content"].startswith(sign * 9) and len(behind.requests[-1].body) < 1 << 20
    assert proxy.memory_mb(peak=True) - idle < 16 + 4 * len(body) / 2**20


def tool_run(result: str, question: str = "What is wrong?", model: str = "gpt-4o") -> dict[str, Any]:
    """A question, a call, and its result."""
    call = {"id": "c", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]
    return {"model": model, "messages": messages}
