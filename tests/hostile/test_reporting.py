"""What is told is true: outcomes at a stop, what was planned and what was done, where a request went, what it cost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.harness import CHAT, HELLO, Answered, Running, eventually, ok, running, upstream
from tests.recorder import EVENTS, Peer, Recorder, Request, answer, chunk

ROOT = Path(__file__).parents[2]
CANARY = "canary"
KEY = "sk-canary-of-the-client"
LONG = {
    "model": "gpt-4",
    "max_tokens": 500,
    "messages": [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"{CANARY} {i} " + "tide crane cargo pilot " * 15}
        for i in range(201)
    ],
}


def outcomes(proxy: Running) -> list[dict[str, Any]]:
    """The lines of its log that tell of requests."""
    return [found for line in list(proxy.lines) if "endpoint" in (found := parsed(line)) and "status" in found]


def events(proxy: Running) -> list[dict[str, Any]]:
    return [found for line in list(proxy.lines) if "event" in (found := parsed(line))]


def parsed(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return found


def told(proxy: Running, count: int = 1) -> dict[str, Any]:
    """The newest outcome, once there are so many."""
    eventually(lambda: len(outcomes(proxy)) >= count, 30)
    return outcomes(proxy)[count - 1]


# H5: a stop that does not wait any longer.


async def for_ever(request: Request, peer: Peer) -> None:
    if b"stream" in request.body:
        await peer.send(EVENTS, chunk(b'data: {"choices":[]}\n\n'))
    await peer.gone()


@pytest.mark.parametrize("path", [CHAT, "/v1/moderations"])
def test_H5_what_a_stop_cuts_off_is_told_as_the_client_saw_it(path: str, workers: int) -> None:
    with upstream(for_ever) as there, running(there.url, workers=workers, PLIMSOLL_DRAIN="1") as proxy:
        got: list[Answered] = []
        waiting = threading.Thread(target=lambda: got.append(proxy.ask(HELLO, path)), daemon=True)
        waiting.start()
        eventually(lambda: len(there.requests) == 1)
        assert proxy.stop(30) == 0
        waiting.join(20)
        (line,) = outcomes(proxy)
        assert (got[0].status, got[0].json["error"]["code"]) == (503, "proxy_stopped")
        assert got[0].headers["x-should-retry"] == "true"
        assert (line["status"], line["result"]) == (503, "stopped")
        assert all(line.startswith("{") for line in proxy.lines)


@pytest.mark.parametrize("path", [CHAT, "/v1/moderations"])
def test_H5_an_answer_that_a_stop_breaks_off_is_told_as_that(path: str) -> None:
    with upstream(for_ever) as there, running(there.url, PLIMSOLL_DRAIN="1") as proxy:
        waiting = threading.Thread(target=lambda: _ignore(proxy, path), daemon=True)
        waiting.start()
        eventually(lambda: len(there.requests) == 1)
        assert proxy.stop(30) == 0
        waiting.join(20)
        (line,) = outcomes(proxy)
        assert (line["status"], line["result"], line["stream"]) == (200, "stopped", True)


def _ignore(proxy: Running, path: str) -> None:
    try:
        proxy.ask({**HELLO, "stream": True}, path)
    except OSError:
        pass
    except Exception as error:  # http.client's own, for an answer that breaks off
        assert "IncompleteRead" in type(error).__name__


def test_H5_every_line_is_json_where_the_log_is(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers, PLIMSOLL_UPSTREEM="x") as proxy:
        proxy.ask(HELLO)
        proxy.ask(path="/v1/models")
        told(proxy, 2)
        if workers > 1:
            os.kill(proxy.workers[0], signal.SIGKILL)
            eventually(lambda: any("a worker exited" in e["event"] for e in events(proxy)), 30)
        proxy.stop()
        for line in proxy.lines:
            assert isinstance(parsed(line)["time"], float), line
        assert any("PLIMSOLL_UPSTREEM is not a setting" in e["event"] for e in events(proxy))
        assert [e["upstream"] for e in events(proxy) if e["event"] == "serves"] == [there.url]


# U3, U8: what a line of the log says.


async def healing(request: Request, peer: Peer) -> None:
    """An upstream that answers all but the first long chat, and marks its answers."""
    if request.method == b"GET":
        await peer.send(answer(b'{"data":[]}'))
    elif b"canary 3 " in request.body and b"canary 4 " in request.body:
        error = {"message": "This model's maximum context length is 4096 tokens.", "code": "context_length_exceeded"}
        await peer.send(answer(json.dumps({"error": error}).encode(), b"400 Bad Request"))
    else:
        await peer.send(ok().replace(b"\r\n", b"\r\nx-request-id: req_upstream\r\n", 1))


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Recorder, Running]]:
    with upstream(healing) as there, running(there.url) as proxy:
        yield there, proxy


def test_U8_the_log_has_path_endpoint_mode_stream_attempts_and_request_id(watched: tuple[Recorder, Running]) -> None:
    _, proxy = watched
    begun = len(outcomes(proxy))
    proxy.ask(HELLO, headers={"x-request-id": "mine-1"})
    line = told(proxy, begun + 1)
    assert (line["path"], line["endpoint"], line["mode"]) == (CHAT, "chat", "fit")
    assert (line["stream"], line["attempts"], line["request_id"]) == (False, 1, "req_upstream")
    proxy.ask({**LONG, "model": "gpt-4-32k", "stream": True}, "/chat/completions?key=" + KEY)
    line = told(proxy, begun + 2)
    assert (line["path"], line["stream"], line["result"]) == ("/chat/completions", True, "healed")
    assert line["attempts"] >= 2
    proxy.ask(path="/v1/files/" + KEY, headers={"x-request-id": "mine-2"})
    line = told(proxy, begun + 3)
    assert (line["path"], line["endpoint"], line["request_id"]) == ("/v1/files/*", "passthrough", "mine-2")
    assert KEY not in "".join(proxy.lines)


def test_U8_a_request_that_was_never_sent_has_no_attempts_and_nothing_was_cut(
    watched: tuple[Recorder, Running],
) -> None:
    there, proxy = watched
    begun, sent = len(outcomes(proxy)), len(there.requests)
    before = proxy.metric("plimsoll_cut_tokens_total")
    assert proxy.ask({**LONG, "tools": big_tools()}).status == 400
    line = told(proxy, begun + 1)
    assert (line["attempts"], line["result"], line["status"]) == (0, "unfit", 400)
    assert "steps" not in line and "prompt_sent" not in line
    assert len(there.requests) == sent
    assert proxy.metric("plimsoll_cut_tokens_total") == before


def test_U3_what_is_not_fitted_is_named_once_and_counted(workers: int) -> None:
    azure, unknown = "/openai/deployments/mine/images/generations", f"/v1/{CANARY}"
    asked = ("/v1/responses/input_tokens", "/v1/messages/count_tokens", azure, "/api/embed", unknown)
    with upstream() as there, running(there.url, workers=workers) as proxy:
        for _ in range(6):
            for path in asked:
                assert proxy.ask(HELLO, path).status == 200
        shown = ["POST " + path for path in (*asked[:2], "/openai/deployments/*/images/generations", asked[3], "/v1/*")]
        eventually(lambda: len(set(unfitted(proxy))) >= len(shown), 30)  # lines are written a little later
        named = unfitted(proxy)
        assert sorted(set(named)) == sorted(shown)
        assert all(named.count(name) <= workers for name in shown), "once in each process"
        for label in ("responses", "messages", "azure", "ollama", "other"):
            eventually(partial(counted, proxy, label, 6))
        assert CANARY not in "".join(proxy.lines)


def unfitted(proxy: Running) -> list[str]:
    return [e["endpoint"] for e in events(proxy) if e["event"].startswith("not fitted")]


def counted(proxy: Running, label: str, often: int) -> bool:
    return proxy.metric("plimsoll_unfitted_requests_total", endpoint=label) == often


def test_U3_inventing_paths_grows_neither_log_nor_metrics(watched: tuple[Recorder, Running]) -> None:
    _, proxy = watched
    for i in range(300):
        proxy.ask(path=f"/v1/{'/'.join(f'x{i}' for _ in range(1 + i % 9))}")
    assert len([e for e in events(proxy) if e["event"].startswith("not fitted")]) < 20
    text = proxy.ask(path="/metrics").body.decode()
    labels = set(re.findall(r'plimsoll_unfitted_requests_total\{endpoint="([^"]*)"\}', text))
    assert labels <= {"files", "other", "models", "responses"}


# U4: planned and done.


def test_U4_what_was_only_planned_is_told_apart_from_what_was_done(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers) as proxy:
        observed = proxy.ask(LONG, headers={"x-plimsoll-mode": "observe"})
        assert there.requests[-1].body == json.dumps(LONG).encode()
        assert observed.headers["x-plimsoll-mode"] == "observe"
        assert observed.headers["x-plimsoll-tokens"] == observed.headers["x-plimsoll-tokens-sent"]
        planned = -int(observed.headers["x-plimsoll-steps"].partition(";")[2])
        eventually(lambda: proxy.metric("plimsoll_planned_cut_tokens_total", step="prune_history") == planned)
        assert proxy.metric("plimsoll_planned_steps_total", step="prune_history") == 1
        assert proxy.metric("plimsoll_cut_tokens_total") == proxy.metric("plimsoll_steps_total") == 0
        line = told(proxy)
        assert (line["mode"], line["planned"]) == ("observe", f"prune_history;-{planned}")
        assert "steps" not in line and line["prompt"] == line["prompt_sent"]
        done = proxy.ask(LONG)
        assert "x-plimsoll-mode" not in done.headers
        eventually(lambda: proxy.metric("plimsoll_cut_tokens_total", step="prune_history") == planned)
        assert proxy.metric("plimsoll_planned_cut_tokens_total", step="prune_history") == planned
        assert proxy.ask(HELLO, headers={"x-plimsoll-mode": "observe"}).headers["x-plimsoll-mode"] == "observe"


# U8: extra calls, and the processes.


async def summing(request: Request, peer: Peer) -> None:
    if b"gpt-4o-mini" in request.body:
        told = {"message": {"role": "assistant", "content": f"<summary>The {CANARY} sang.</summary>"}}
        usage = {"prompt_tokens": 1_000, "completion_tokens": 23, "total_tokens": 1_023}
        await asyncio.sleep(0.05)
        await peer.send(answer(json.dumps({"choices": [told], "usage": usage}).encode()))
    else:
        await peer.send(ok())


def test_U8_extra_calls_are_in_the_log_and_in_the_metrics() -> None:
    with upstream(summing) as there, running(there.url, PLIMSOLL_SUMMARY_MODEL="gpt-4o-mini") as proxy:
        proxy.ask(LONG, key=KEY)
        asked = [r for r in there.requests if b"gpt-4o-mini" in r.body]
        line = told(proxy)
        assert asked and line["extra_calls"] >= 1
        assert line["extra_tokens"] % 1_023 == 0 and line["extra_tokens"] >= 1_023
        assert line["extra_ms"] >= 50
        eventually(
            lambda: (
                proxy.metric("plimsoll_extra_calls_total", kind="summary", result="ok")
                == len([r for r in there.requests if b"gpt-4o-mini" in r.body])
            )
        )
        calls = proxy.metric("plimsoll_extra_calls_total", kind="summary", result="ok")
        assert proxy.metric("plimsoll_extra_tokens_total", kind="summary") == 1_023 * calls
        assert proxy.metric("plimsoll_extra_seconds_total", kind="summary") >= 0.05
        metrics = proxy.ask(path="/metrics").body.decode()
        for text in ("".join(proxy.lines), metrics):
            assert CANARY not in text and KEY not in text


def test_U8_what_the_processes_take_is_told_of_all_of_them_together(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers) as proxy:
        for _ in range(10):
            proxy.ask(HELLO)
        # Between a scrape and a look of our own it may open, read or free something.
        eventually(
            lambda: proxy.metric("process_resident_memory_bytes") == pytest.approx(proxy.memory_mb() * 2**20, rel=0.3)
        )
        eventually(lambda: proxy.metric("process_open_fds") == pytest.approx(proxy.files(), abs=6))
        assert 0 < proxy.metric("process_cpu_seconds_total") <= proxy.cpu_seconds() + 0.1
        assert proxy.metric("process_max_fds") > 100
        assert proxy.metric("process_virtual_memory_bytes") > proxy.metric("process_resident_memory_bytes")
        assert proxy.metric("process_start_time_seconds") > 1_600_000_000
        if workers > 1:
            before = proxy.metric("process_cpu_seconds_total")
            os.kill(proxy.workers[0], signal.SIGKILL)
            eventually(lambda: any("a worker exited" in e["event"] for e in events(proxy)), 30)
            assert proxy.metric("process_cpu_seconds_total") >= before, "also what an ended worker took"


# U6: what was asked for in vain, and what was wrong.


def cli(*arguments: str, given: bytes = b"", **environment: str) -> tuple[int, str, str]:
    """What `plimsoll` answers: exit code, output and errors."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [sys.executable, "-m", "proxy.cli", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, env={**kept, **environment}, cwd=ROOT, timeout=240)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_U6_our_refusal_has_its_code_in_its_text_too() -> None:
    with upstream() as there, running(there.url) as proxy:
        reply = proxy.ask({**HELLO, "model": "gpt-4", "tools": big_tools()})
        error = reply.json["error"]
        assert (reply.status, error["code"]) == (400, "context_length_exceeded")
        assert "context_length_exceeded" in error["message"]


def big_tools() -> list[dict[str, Any]]:
    """Tools that no window of gpt-4's holds, and of which no step may shorten anything."""
    choices = {"type": "string", "enum": [f"harbour-{n}" for n in range(60)]}
    schema = {"type": "object", "properties": {"choice": choices}}
    return [{"type": "function", "function": {"name": f"t{i}", "parameters": schema}} for i in range(60)]


def test_U6_a_folder_that_is_not_there_is_named_as_it_was_given() -> None:
    assert cli("check", "/nonexistent") == (2, "", "plimsoll: no such folder: /nonexistent\n")
    code, _, said = cli("check", PLIMSOLL_RULES="/nonexistent")
    assert (code, said) == (2, "plimsoll: PLIMSOLL_RULES: no such folder: /nonexistent\n")
    code, _, said = cli("models", "--rules", "/nonexistent", "gpt-4")
    assert (code, said) == (2, "plimsoll: --rules: no such folder: /nonexistent\n")


@pytest.mark.parametrize("command", [("serve",), ("inspect", "-")])
def test_U6_a_wrong_flag_is_blamed_as_a_flag_and_a_variable_as_a_variable(command: tuple[str, ...]) -> None:
    code, _, said = cli(command[0], "--ladder", "nope", *command[1:], given=b"{}")
    assert code == 2 and said.startswith("plimsoll: --ladder is 'nope', must be one of ") and "PLIMSOLL" not in said
    code, _, said = cli(*command, given=b"{}", PLIMSOLL_LADDER="nope")
    assert code == 2 and said.startswith("plimsoll: PLIMSOLL_LADDER is 'nope', must be one of ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"model": "gpt-4", "messages": [', "its JSON ends too early, as if it was cut off"),
        (b"model: gpt-4", "JSON is malformed: invalid character (byte 0)"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_U6_an_empty_file_one_that_was_cut_off_and_one_that_is_no_json_are_told_apart(body: bytes, said: str) -> None:
    code, _, told = cli("inspect", "-", given=body)
    assert (code, told) == (2, f"plimsoll: -: Nothing to inspect: {said}.\n")


def test_U6_what_is_asked_for_in_vain_is_said(workers: int) -> None:
    asked = {"x-plimsoll-window": "99999", "x-plimsoll-pin": "0,999"}
    over = "the window of 99,999 tokens is over the model's own 8,192, which applies"
    absent = "pin 999 names no message: there are 1"
    hello = {**HELLO, "model": "gpt-4"}
    with upstream() as there, running(there.url, workers=workers) as proxy:
        assert proxy.ask(hello, headers=asked).headers["x-plimsoll-notice"] == f"{over}; {absent}"
        told = proxy.ask({**LONG, "messages": LONG["messages"]}, headers=asked).headers["x-plimsoll-notice"]
        assert told == f"{over}; pin 999 names no message: there are 201"
        assert proxy.ask(hello, "/inspect" + CHAT, headers=asked).json["notices"] == [over, absent]
        assert "x-plimsoll-notice" not in proxy.ask(hello, headers={"x-plimsoll-window": "4096"}).headers
    code, told, _ = cli("inspect", "--window", "99999", "-", given=json.dumps(hello).encode())
    assert code == 0 and f"note: {over}" in " ".join(told.split())


def test_U6_an_upstream_for_a_model_that_nobody_names_is_said() -> None:
    more: Any = {"PLIMSOLL_SUMMARY_UPSTREAM": "http://127.0.0.1:9/v1", "PLIMSOLL_EMBEDDINGS_API_KEY": KEY}
    with upstream() as there, running(there.url, **more) as proxy:
        said = [e["event"] for e in events(proxy) if "is of no use" in e["event"]]
        assert said == [
            "PLIMSOLL_SUMMARY_UPSTREAM is of no use without PLIMSOLL_SUMMARY_MODEL: there is no summary model",
            "PLIMSOLL_EMBEDDINGS_API_KEY is of no use without PLIMSOLL_EMBEDDINGS_MODEL: there is no embeddings model",
        ]
        assert KEY not in "".join(proxy.lines)
    more |= {"PLIMSOLL_SUMMARY_MODEL": "m", "PLIMSOLL_EMBEDDINGS_MODEL": "e"}
    with upstream() as there, running(there.url, **more) as proxy:
        assert not [e for e in events(proxy) if "is of no use" in e["event"]]


# Canaries: wherever a client puts its content or a key, no line, no metric and no header of ours has it.


def test_U8_neither_content_nor_keys_are_in_lines_metrics_or_headers(workers: int) -> None:
    operator: Any = {
        "PLIMSOLL_API_KEY": "sk-canary-api",
        "PLIMSOLL_SUMMARY_MODEL": "gpt-4o-mini",
        "PLIMSOLL_SUMMARY_API_KEY": "sk-canary-summary",
        "PLIMSOLL_SECRET": "canary-secret",
    }
    with upstream(summing) as there, running(there.url, workers=workers, **operator) as proxy:
        answers = [
            proxy.ask(LONG, key=key, headers=headers)
            for key in (KEY, None)
            for headers in ({}, {"x-plimsoll-mode": "observe"}, {"x-request-id": "sk-canary-id"})
        ]
        answers += [
            proxy.ask(HELLO, f"/v1/{CANARY}/{KEY}?key={KEY}"),
            proxy.ask(HELLO, f"/{CANARY}{CHAT}"),
            proxy.ask(f"{{{CANARY}".encode(), headers={"x-plimsoll-mode": "strict"}),
            proxy.ask(HELLO, headers={"x-plimsoll-ladder": CANARY}),
            proxy.ask({**HELLO, "tools": big_tools(), "model": "gpt-4", "user": CANARY}),
        ]
        metrics = proxy.ask(path="/metrics").body.decode()
        assert CANARY not in metrics
        for reply in answers:
            assert CANARY not in json.dumps(dict(reply.headers))
            assert CANARY not in reply.body.decode(), "our own errors repeat nothing"
        proxy.stop()
        assert CANARY not in "\n".join(proxy.lines)
        for request in there.requests:
            text = request.head.decode()
            assert "canary-secret" not in text
            assert ("sk-canary-summary" in text) <= (b"gpt-4o-mini" in request.body)
            assert ("sk-canary-api" in text) <= (request.target.startswith(b"/v1/chat/completions"))
