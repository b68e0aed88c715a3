"""Every command, with good arguments and bad ones: what it prints, where, and its exit code."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from proxy import __version__
from proxy.cli.demo import BODY
from proxy.cli.main import main
from tests.hostile.harness import upstream
from tests.makers import body, system, user, words
from tests.recorder import Peer, Request, answer

COMMANDS = (
    "serve",
    "inspect",
    "replay",
    "models",
    "forget",
    "page",
    "top",
    "check",
    "caller",
    "demo",
    "simulate",
    "completion",
)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "LLM_", "CONTEXT_", "OTEL_"))}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    for name in os.environ.keys() - CLEAN.keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PLIMSOLL_ADMIN_PORT", "0")  # no proxy of this machine is asked what it learned


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A file with a request that is too long for its model."""
    path = tmp_path / "long.json"
    path.write_text(json.dumps(BODY))
    return str(path)


def ended(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    try:
        code = main(argv)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    return code, *capsys.readouterr()


# Arguments


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "--version") == (0, f"plimsoll {__version__}\n", "")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, "--help")
    assert code == 0
    assert all(re.search(rf"^ +{command}\s+\w", out, re.MULTILINE) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_that_fits_a_terminal(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, err = ended(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: plimsoll {command}")
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ([], "required: COMMAND"),
        (["sail"], "invalid choice: 'sail'"),
        (["serve", "--speed", "9"], "unrecognized arguments: --speed 9"),
        (["inspect"], "required: FILE"),
        (["inspect", "--json", "--request", "x"], "not allowed with argument"),
        (["inspect", "--window", "many", "x"], "--window: is 'many', must be a number of tokens such as 32000"),
        (["models"], "required: MODEL"),
        (["forget"], "required: MODEL"),
        (["simulate", "--port", "70000"], "--port: is '70000', must be a whole number from 0 to 65535"),
    ],
)
def test_wrong_arguments_end_with_code_2_and_the_reason(
    capsys: pytest.CaptureFixture[str], argv: list[str], reason: str
) -> None:
    code, out, err = ended(capsys, *argv)
    assert (code, out) == (2, "")
    assert reason in err


# inspect


def test_the_picture_of_a_request_that_is_too_long(capsys: pytest.CaptureFixture[str], long: str) -> None:
    code, out, err = ended(capsys, "inspect", long)
    assert (code, err) == (0, "")
    for told in (
        "gpt-4   window 8,192 (from litellm)",
        "before",
        "sent",
        "prune_history",
        " of 144 messages sent, 2 added",
    ):
        assert told in out


def test_the_plan_as_json_and_the_body_as_it_would_be_sent(capsys: pytest.CaptureFixture[str], long: str) -> None:
    told = json.loads(ended(capsys, "inspect", "--json", long)[1])
    assert told["tokens"]["prompt"] == 7793 and told["fits"] is True
    sent = json.loads(ended(capsys, "inspect", "--request", long)[1])
    assert sent == told["request"]
    assert len(sent["messages"]) == told["messages"]["sent"] < 144


def test_a_body_can_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body([user("hi")]))))
    code, out, _ = ended(capsys, "inspect", "-")
    assert code == 0
    assert "forwarded byte for byte" in out


def test_a_request_that_fits_would_be_sent_byte_for_byte(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = b'{ "messages" : [{"content":"hi",  "role":"user"}],\n\t"model":"gpt-4o" }'
    (tmp_path / "odd.json").write_bytes(odd)
    assert ended(capsys, "inspect", "--request", str(tmp_path / "odd.json"))[1].encode() == odd + b"\n"


def test_the_api_of_a_file_is_recognised(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = {"model": "gpt-4o", "instructions": "Be brief.", "input": "hi"}
    (tmp_path / "told.json").write_text(json.dumps(told))
    found = json.loads(ended(capsys, "inspect", "--json", str(tmp_path / "told.json"))[1])
    assert found["tokens"]["prompt"] == 3 + 4 + 3 + 4 + 1 and found["request"] == told


def test_a_body_that_is_no_text_is_shown_as_it_is(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    odd = b'{"model":"gpt-4o","messages":[{"role":"user","content":"\xff"}]}'
    (tmp_path / "odd.json").write_bytes(odd)
    for flag in ("--request", "--json"):
        assert main(["inspect", flag, str(tmp_path / "odd.json")]) == 0
        assert b'"content":"\xff"' in capfdbinary.readouterr().out.replace(b": ", b":")


def test_a_window_a_ladder_and_a_limit_change_the_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    def plan(*argv: str) -> Any:
        return json.loads(ended(capsys, "inspect", "--json", *argv, long)[1])

    assert plan("--window", "6000")["window"] == 6000
    assert plan("--context-total-token-limit", "5000")["window"] == 5000
    economy = plan("--ladder", "economy")
    assert economy["tokens"]["prompt_sent"] != plan()["tokens"]["prompt_sent"]
    switch = ("--llm-fallback-enabled", "true", "--llm-allowed-fallback-models", "gpt-4o", "--ladder", "lossless")
    assert plan(*switch)["model_sent"] == "gpt-4o"
    monkeypatch.setenv("PLIMSOLL_REDIS", "redis://192.0.2.1")  # nobody is asked
    assert plan()["tokens"]["prompt"] == 7793


def test_U15_pins_and_a_mode_can_be_tried(capsys: pytest.CaptureFixture[str], long: str) -> None:
    def sent(*flags: str) -> Any:
        code, out, _ = ended(capsys, "inspect", "--json", *flags, long)
        assert code == 0
        return json.loads(out)

    messages: Any = BODY["messages"]
    place = next(row["index"] for row in sent()["messages"]["detail"] if row["state"] == "dropped")
    text = messages[place]["content"]
    assert text not in [message["content"] for message in sent()["request"]["messages"]]
    assert text in [message["content"] for message in sent("--pin", str(place))["request"]["messages"]]
    for mode in ("observe", "off"):
        found = sent("--mode", mode)
        assert (found["mode"], found["request"]["messages"]) == (mode, messages) and found["steps"]
        assert f"in mode {mode} it is sent as it came" in ended(capsys, "inspect", "--mode", mode, long)[1]
    assert ended(capsys, "inspect", "--mode", "none", long)[0] == 2


def test_U29_a_plan_under_the_rule_of_a_caller(capsys: pytest.CaptureFixture[str], long: str, tmp_path: Path) -> None:
    (tmp_path / "callers.toml").write_text('[[caller]]\nname = "search"\nmatch = { headers = ["s"] }\nwindow = 4000')
    rules = ("--rules", str(tmp_path))
    code, out, _ = ended(capsys, "inspect", "--json", *rules, "--caller", "search", long)
    assert code == 0 and (json.loads(out)["caller"], json.loads(out)["window"]) == ("search", 4000)
    assert json.loads(ended(capsys, "inspect", "--json", *rules, long)[1])["window"] > 4000
    code, _, problem = ended(capsys, "inspect", *rules, "--caller", "serch", long)
    assert code == 2 and "no row with the name 'serch'" in problem


def test_a_lorebook_can_be_tried(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lorebooks").mkdir()
    (tmp_path / "lorebooks" / "tides.md").write_text("# Vell\nA town with nine bells.")
    (tmp_path / "short.json").write_bytes(body([user("What is Vell?")], "gpt-4"))
    asked = ("inspect", "--rules", str(tmp_path), "--lorebook", "tides", "--request", str(tmp_path / "short.json"))
    code, out, _ = ended(capsys, *asked, "--ladder", "rag")
    assert code == 0 and "nine bells" in json.loads(out)["messages"][0]["content"]
    code, _, complaint = ended(capsys, *asked)
    assert code == 2 and "needs a ladder with the step recall, such as rag" in complaint


def test_a_folder_for_recordings_that_cannot_be_written_is_found_by_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_RECORD", str(tmp_path / "records"))
    assert main(["check"]) == 0
    (tmp_path / "records").write_bytes(b"")
    assert main(["check"]) == 1
    assert capsys.readouterr().out.endswith(f"PLIMSOLL_RECORD: {tmp_path}/records is a file, must be a folder\n")
    (tmp_path / "records").unlink()
    (tmp_path / "records").mkdir(mode=0o755)
    assert main(["check"]) == 1
    assert "other users may read or write" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PLIMSOLL_LADDER", "defualt", "is 'defualt', must be one of agent, "),
        ("PLIMSOLL_REDIS", "reds://127.0.0.1", " must begin with redis://, "),
        ("PLIMSOLL_UPSTREAM_CA", "/none.pem", ", /none.pem: No such file"),
        ("HTTPS_PROXY", "socks5://proxy:1", " must be an http or https URL"),
        ("PLIMSOLL_PAGE_CONTENT", "true", " needs PLIMSOLL_ADMIN_TOKEN"),
    ],
)
def test_a_setting_that_stops_the_start_is_found_by_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv("PLIMSOLL_HOST", "0.0.0.0")
    assert main(["check"]) == 0
    monkeypatch.setenv(name, value)
    code, _, complaint = ended(capsys, "check")
    assert code == 2 and f"plimsoll: {name}" in complaint and reason in complaint


def test_a_broken_lorebook_is_found_by_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lorebooks").mkdir()
    (tmp_path / "lorebooks" / "torn.json").write_text("{")
    code, out, _ = ended(capsys, "check", str(tmp_path))
    assert code == 1 and f"{tmp_path}/lorebooks/torn.json: Input data was truncated" in out


def test_what_nothing_makes_fit_is_exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": f"that_does_whatever_it_is_for_{i}"}} for i in range(900)]
    (tmp_path / "unfit.json").write_bytes(body([user("hi")], "gpt-4", tools=tools))
    code, out, _ = ended(capsys, "inspect", str(tmp_path / "unfit.json"))
    assert code == 1
    assert "does not fit: " in out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Nothing to inspect: "),
        (b"{", "Nothing to inspect: "),
        (b'{"model":"gpt-4o"}', "Nothing to inspect: no API takes it"),
        (b'{"prompt":5}', "no input or prompt of text"),
        (b'{"model":"gpt-4o","messages":[]}', "messages is empty"),
        (b"\x1f\x8b\x08\x00", "Nothing to inspect: "),
    ],
)
def test_a_file_that_is_no_request_is_said_to_be_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    code, out, err = ended(capsys, "inspect", str(tmp_path / "broken.json"))
    assert (code, out) == (2, "")
    assert err.startswith(f"plimsoll: {tmp_path}/broken.json: ") and reason in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_said_not_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "no.json")
    assert ended(capsys, "inspect", missing) == (2, "", f"plimsoll: {missing}: No such file or directory\n")
    assert ended(capsys, "inspect", str(tmp_path)) == (2, "", f"plimsoll: {tmp_path}: Is a directory\n")


# check


def test_a_family_of_the_users_is_checked_and_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    row = 'name = "harbour"\nmodels = ["harbour-*"]\nrecipe = "classic"\nimages = { formula = "flat", tokens = 9 }\n'
    (tmp_path / "families.toml").write_text(f"[[family]]\n{row}")
    assert ended(capsys, "check", str(tmp_path))[0] == 0
    _, out, _ = ended(capsys, "models", "--json", "--rules", str(tmp_path), "harbour-9b")
    assert json.loads(out)[0]["count"] == "exact"
    (tmp_path / "families.toml").write_text(f"[[family]]\n{row}".replace("classic", "clasic"))
    code, out, _ = ended(capsys, "check", str(tmp_path))
    assert code == 1 and f"{tmp_path}/families.toml, family 1 (harbour): recipe is 'clasic', must be one of " in out


def test_the_built_in_rules_have_no_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "check") == (0, "the built-in rules: no problems\n", "")


def test_every_problem_of_a_folder_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "harbour"\ntokens = "many"\n')
    (tmp_path / "window.toml").write_text("")
    code, out, err = ended(capsys, "check", str(tmp_path))
    assert (code, err) == (1, "")
    assert len(out.splitlines()) == 2
    assert f"{tmp_path}/windows.toml, window 1" in out and "window.toml: unknown file" in out
    monkeypatch.setenv("PLIMSOLL_RULES", str(tmp_path))
    assert ended(capsys, "check")[:2] == (1, out)
    assert ended(capsys, "check", str(tmp_path / "no")) == (2, "", f"plimsoll: no such folder: {tmp_path / 'no'}\n")


def test_W12_check_notes_moves_that_are_allowed_and_cannot_be_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = '[[upstream]]\nname = "other"\nurl = "https://llm.example.com/v1"\nmodels = ["gpt-4.1"]\nkey = "K"\n'
    (tmp_path / "upstreams.toml").write_text(row)
    for name, value in {
        **{"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4.1,gpt-4,nobodys-own"},
        **{"PLIMSOLL_RULES": str(tmp_path), "PLIMSOLL_UPSTREAM": "http://127.0.0.1:8000/v1"},
    }.items():
        monkeypatch.setenv(name, value)
    code, out, _ = ended(capsys, "check")
    assert code == 0 and out.splitlines()[:-1] == [
        "note: a move to gpt-4.1 is not made for callers with a key until default has refused one: no row of "
        'key_checks.toml says that it checks them; the row other may have callers = "any"',
        "note: a move to gpt-4 is made only where gpt-4.1, which comes first, lacks what a request needs",
        "note: a move to nobodys-own is not made: its window is not known; a row of windows.toml may say it",
    ]
    (tmp_path / "upstreams.toml").write_text(f'{row}callers = "any"\n')
    monkeypatch.setenv("LLM_ALLOWED_FALLBACK_MODELS", "gpt-4,gpt-4.1")
    assert ended(capsys, "check") == (0, f"{tmp_path}: no problems\n", "")


# serve and simulate, as processes


@contextmanager
def running(*argv: str, stdout: int = subprocess.DEVNULL) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A command that serves, and the ports that it said it listens on."""
    command = [sys.executable, "-m", "proxy.cli", *argv]
    with subprocess.Popen(command, env=CLEAN, stdout=stdout, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            lines = [process.stderr.readline().decode() for _ in range(2 if "--admin-port" in argv else 1)]
            yield process, [int(re.findall(r"http://127\.0\.0\.1:(\d+)/", line)[0]) for line in lines]
        finally:
            process.kill()


def asked(
    port: int, path: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST" if body else "GET", path, body, {"authorization": "Bearer sk-canary", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def stopped(process: subprocess.Popen[bytes], by: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """The exit code, and what else it said."""
    process.send_signal(by)
    assert process.stderr is not None
    code = process.wait(60)
    return code, process.stderr.read().decode()


def test_serving_says_where_it_listens_answers_at_once_and_ends_well() -> None:
    with running("simulate", "--port", "0") as (_, (upstream,)):
        url = f"http://127.0.0.1:{upstream}/v1"
        with running("serve", "--port", "0", "--upstream", url) as (process, (port,)):
            status, answer = asked(port, "/v1/chat/completions", body([user("canary")], "gpt-4"))
            assert (status, json.loads(answer)["choices"][0]["finish_reason"]) == (200, "stop")
            assert asked(port, "/readyz") == (200, b"ready\n")
            assert stopped(process) == (0, "")


def test_sigterm_drains_and_is_a_success() -> None:
    with running("serve", "--port", "0", "--upstream", "http://127.0.0.1:9/v1") as (process, (port,)):
        assert asked(port, "/readyz")[0] == 200
        assert stopped(process, signal.SIGTERM) == (0, "")


EXPECTED = {"not fitted: requests pass through as they are, unmeasured", "no connection to an upstream"}


def test_the_log_is_json_lines_without_content_or_keys() -> None:
    with (
        running("simulate", "--port", "0") as (_, (upstream,)),
        running("serve", "--port", "0", "--upstream", f"http://127.0.0.1:{upstream}/v1", stdout=subprocess.PIPE) as (
            process,
            (port,),
        ),
    ):
        for text in ("canary", words(9000, "canary")):
            asked(port, "/v1/chat/completions", body([system("canary"), user(text)], "gpt-4"))
        asked(port, "/v1/canary?canary")
        code, said = stopped(process)
        assert (code, [json.loads(line)["endpoint"] for line in said.splitlines()]) == (0, ["GET /v1/*"])
        assert process.stdout is not None
        lines = process.stdout.read().decode().splitlines()
        assert [json.loads(line)["endpoint"] for line in lines] == ["chat", "chat", "passthrough"]
        assert "canary" not in said + "".join(lines)


def test_an_admin_port_takes_the_admin_paths_away_from_the_data_port() -> None:
    with running("serve", "--port", "0", "--admin-port", "0", "--upstream", "http://127.0.0.1:9") as (process, ports):
        port, admin = ports
        assert asked(admin, "/metrics")[0] == 200
        assert asked(port, "/metrics")[0] == 404
        assert stopped(process) == (0, "")


def test_several_workers_serve_on_one_port_and_are_counted_together() -> None:
    argv = ("serve", "--port", "0", "--workers", "2", "--upstream", "http://127.0.0.1:9/v1")
    with running(*argv) as (process, (port,)):
        for _ in range(20):
            assert asked(port, "/v1/models")[0] == 502
        deadline = time.monotonic() + 60
        line = b'plimsoll_requests_total{endpoint="passthrough",model="",result="upstream_error",status="502"} 20.0'
        while line not in asked(port, "/metrics")[1].splitlines():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        code, said = stopped(process)
        assert code == 0 and {json.loads(line)["event"] for line in said.splitlines()} <= EXPECTED


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stop_refuses_new_connections_and_lets_running_requests_end(workers: str) -> None:
    go = threading.Event()

    async def waits(request: Request, peer: Peer) -> None:
        await asyncio.to_thread(go.wait, 60)
        await peer.send(answer())

    with upstream(waits) as up, ThreadPoolExecutor(1) as threads:
        with running("serve", "--port", "0", "--workers", workers, "--upstream", up.url) as (process, (port,)):
            late = threads.submit(asked, port, "/v1/chat/completions", body([user("hi")]))
            try:
                while b"plimsoll_requests_in_flight 1" not in asked(port, "/metrics")[1]:
                    assert not late.done()
                process.send_signal(signal.SIGINT)
                while _connects(port):
                    assert not late.done()
                    time.sleep(0.05)
                assert process.poll() is None
            finally:
                go.set()
            assert late.result()[0] == 200
            assert process.wait(60) == 0


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 20).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for command in ("serve", "simulate"):
            done = subprocess.run(
                [sys.executable, "-m", "proxy.cli", command, "--port", str(port)],
                env=CLEAN,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 2
            assert done.stderr == f"plimsoll: cannot listen on 127.0.0.1, port {port}: Address already in use\n"


@pytest.mark.parametrize("reader", ["gone", "stuck"])
def test_a_standard_output_that_nobody_reads_costs_no_request(reader: str) -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    try:
        if reader == "stuck":
            while True:
                os.write(into, b"x" * 65536)
    except BlockingIOError:
        pass
    os.set_blocking(into, True)
    with running("serve", "--port", "0", "--upstream", "http://127.0.0.1:9/v1", stdout=into) as (process, (port,)):
        os.close(into)
        if reader == "gone":
            os.close(out)
        for _ in range(50):
            assert asked(port, "/v1/models")[0] == 502
        code, said = stopped(process)
        assert code == 0 and {json.loads(line)["event"] for line in said.splitlines()} <= EXPECTED
    if reader == "stuck":
        os.close(out)


def test_what_is_printed_may_be_read_in_part() -> None:
    """`plimsoll inspect FILE --json | head -1` is no error to speak of."""
    done = subprocess.run(
        f"{sys.executable} -m proxy.cli inspect --json - | head -c 1",
        shell=True,
        input=body([user(words(200)) for _ in range(400)], "gpt-4"),
        env=CLEAN,
        capture_output=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (b"{", b"")


def test_a_terminal_that_knows_ascii_alone_gets_a_picture(long: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "inspect", long],
        env={**CLEAN, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b" of 144 messages sent, 2 added" in done.stdout


def test_the_simulator_sends_the_refusals_of_the_named_provider(capsys: pytest.CaptureFixture[str]) -> None:
    with running("simulate", "--port", "0", "--window", "600", "--provider", "vllm") as (process, (port,)):
        status, answer = asked(port, "/v1/chat/completions", body([user(words(900))], "m"))
        assert status == 400
        assert "maximum context length is 600 tokens" in json.loads(answer)["message"]
        assert stopped(process) == (0, "")
    code, _, err = ended(capsys, "simulate", "--port", "0", "--provider", "nobody")
    assert code == 2
    assert "--provider: unknown provider nobody; known are openai, " in err


def test_an_interrupt_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("proxy.cli.demo.run", interrupted)
    assert main(["demo"]) == 130
