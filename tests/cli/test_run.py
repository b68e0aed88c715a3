"""`plimsoll run`: a program behind proxies of its own, with its exit code, its signals and a line of what was done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import run as running
from proxy.cli.demo import free_ports, started, wait_for

LIMIT_S = 120.0  # only catches a hang
ASK = """
import json, os, sys, urllib.request
base = os.environ["OPENAI_BASE_URL"]
said = [{"role": "user", "content": "How is the tide today? " * 40}] * 120
body = json.dumps({"model": "gpt-4", "max_tokens": 3000, "messages": said}).encode()
request = urllib.request.Request(base + "/chat/completions", body, {"content-type": "application/json"})
usage = json.loads(urllib.request.urlopen(request).read())["usage"]
ours = [name for name in os.environ if name.startswith("PLIMSOLL_")]
print(json.dumps({"base": base, "prompt": usage["prompt_tokens"], "ours": ours}))
sys.exit(7)
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    port, _ = free_ports()
    with started("simulate", port):
        wait_for(port, "/v1/models")
        yield f"http://127.0.0.1:{port}/v1"


def environment(**more: str) -> dict[str, str]:
    dropped = ("PLIMSOLL_", "LLM_", "CONTEXT_", "OPENAI_", "ANTHROPIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | more


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "proxy.cli", "run", *arguments]


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = command(*arguments)
    return subprocess.run(done, env=environment(**more), capture_output=True, text=True, timeout=LIMIT_S, check=False)


def ended(port: str) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) != 0


def test_a_program_is_served_and_its_exit_code_returned_with_a_line_of_what_was_done(upstream: str) -> None:
    done = run(
        "--upstream",
        upstream,
        "--",
        sys.executable,
        "-c",
        ASK,
        PLIMSOLL_API_KEY="sk-operator",
        PLIMSOLL_SECRET="s" * 32,
    )
    assert done.returncode == 7, done.stderr
    said = json.loads(done.stdout)
    assert said["prompt"] <= 8192 - 3000 and said["ours"] == [], "the program is not given the operator's key"
    assert re.search(r"openai, anthropic: 1 request, 1 cut, 0 healed, [\d,]+ of [\d,]+ tokens saved", done.stderr)
    port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/v1", said["base"])
    assert port is not None and ended(port[1])


def test_the_upstream_is_what_the_programs_own_variable_names(upstream: str) -> None:
    done = run("--", sys.executable, "-c", ASK, OPENAI_BASE_URL=upstream)
    assert done.returncode == 7, done.stderr
    assert f"to {upstream};" in done.stderr and "anthropic through" in done.stderr
    assert json.loads(done.stdout)["base"] != upstream


def test_a_password_in_the_upstreams_url_is_refused_and_not_told(upstream: str) -> None:
    done = run("--", sys.executable, "-c", "pass", OPENAI_BASE_URL=upstream.replace("//", "//ann:hunter22@"))
    assert done.returncode == 2 and "hunter22" not in done.stdout + done.stderr


def test_signals_reach_the_program_and_what_ended_it_is_the_exit_code(upstream: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    waits = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    process = subprocess.Popen(
        command("--upstream", upstream, "--", sys.executable, "-c", waits), env=environment(), stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + LIMIT_S
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"0 requests" in said


def test_a_signal_that_comes_while_the_program_starts_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = subprocess.Popen

    def signalled(arguments: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGTERM)
        return begin(arguments, **more)

    monkeypatch.setattr(subprocess, "Popen", signalled)
    before = signal.getsignal(signal.SIGTERM)
    assert running._run([sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ), []) == 128 + 15
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_comes_while_a_proxy_starts_ends_it_too(upstream: str) -> None:
    asked = command("--upstream", upstream, "--", sys.executable, "-c", "import time; time.sleep(600)")
    with subprocess.Popen(asked, env=environment(), stderr=subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + LIMIT_S
        while not (found := children.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert found and not any(Path(f"/proc/{child}").exists() for child in found)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_with_page_the_proxy_stays_until_ctrl_c_or_until_its_terminal_goes(upstream: str, number: int) -> None:
    with subprocess.Popen(
        command("--page", "--upstream", upstream, "--", sys.executable, "-c", "pass"),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "stays open" in line)
        port = re.search(r":(\d+)/", line)
        assert port is not None and not ended(port[1])
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 0 and ended(port[1])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "run needs a program"),
        (("--", "no-such-program"), 127, "there is no program no-such-program"),
        (("--upstream", "ftp://x", "--", sys.executable), 2, "--upstream"),
    ],
)
def test_what_cannot_be_run_is_said_without_a_traceback(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run(*arguments)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr


def test_a_proxy_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text("[[window]]\nmodel = 7\n")
    done = run("--rules", str(tmp_path), "--", sys.executable, "-c", "pass")
    assert done.returncode == 2 and "windows.toml" in done.stderr and "Traceback" not in done.stderr
