"""Recording in processes as users start them: a stop loses nothing, workers do not disturb each other, disks fail."""

from __future__ import annotations

import json
import resource
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.observe.recording.recording_files import lines
from tests.hostile.harness import HELLO, Running, eventually, running, upstream
from tests.recorder import Recorder

KEY = "sk-secret-0123456789"


@pytest.fixture(scope="module")
def up() -> Iterator[Recorder]:
    with upstream() as made:
        yield made


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.iterdir() for line in lines(path)]


def ask(proxy: Running, number: int) -> None:
    body = {**HELLO, "messages": [{"role": "user", "content": f"Question {number}"}]}
    assert proxy.ask(body, key=KEY).status == 200


def has_failed(proxy: Running, count: int) -> bool:
    return proxy.metric("plimsoll_recorded_requests_total", result="failed") >= count


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_loses_no_line(tmp_path: Path, up: Recorder, workers: int) -> None:
    folder = tmp_path / "records"
    with running(up.url, workers=workers, PLIMSOLL_RECORD=str(folder), PLIMSOLL_RECORD_CONTENT="bodies") as proxy:
        for number in range(40):
            ask(proxy, number)
        assert proxy.stop(60) == 0
    found = [line for line in read(folder) if line["api"] == "chat"]
    asked = sorted(int(line["request"]["messages"][0]["content"].split()[1]) for line in found)
    assert asked == list(range(40)) and len({line["caller"] for line in found}) == 1
    processes = {path.name.split("-")[2] for path in folder.iterdir()}
    assert 1 <= len(processes) <= workers
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert KEY not in json.dumps(found)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"])
def test_no_body_adds_a_field_or_a_line(tmp_path: Path, up: Recorder, path: str) -> None:
    """Also behind messages that are known, and where the scan tolerates what is no JSON."""
    key = "input" if path == "/v1/responses" else "messages"
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "tide " * 900} for n in range(5)]
    head = '{"model":"gpt-4o","max_tokens":16,"stream":false,"' + key + '":['
    known = head + ",".join(map(json.dumps, turns))
    forged = '"status":418,"result":"forged"'
    tails = [
        *("]}", ',{"role":"user","content":"And?"}]}', "]", "", "]}]", "]},", "]}" + forged, "]}," + forged),
        *(
            "]},{" + forged + "}",
            ']}\n{"v":1}',
            "]},{",
            "]}}",
            "]x}",
            ']"}',
            ",]}",
            ",,{}]}",
            ']},"b":{"c":1}',
            '],"user":}',
        ),
        *('],"user":"\n"}', '],"user":"\x00"}', '],"user":"\\x"}', '],"user":01}', '],"user":1,}', '],"user":nul}'),
        *("\n]\r\n}\n", '],"user":"\\ud800"}', f'],"{key}":[]}}', "] }", "]\u00a0}", "]\0}", "]}\0"),
    ]
    with running(up.url, PLIMSOLL_RECORD=str(tmp_path), PLIMSOLL_RECORD_CONTENT="bodies") as proxy:
        for _ in range(2):  # at first its beginning is not known
            for tail in tails:
                proxy.ask((known + tail).encode(), path, key=KEY)
        assert proxy.stop(60) == 0
    found = [line for line in read(tmp_path) if line["path"] == path]
    assert len(found) == 2 * len(tails)
    assert not [line for line in found if line["status"] == 418 or line["result"] == "forged" or "b" in line]
    whole = [line for line in found if "request" in line]
    assert len(whole) >= 8 and all(line["request"][key] is not None for line in whole)


def test_a_crash_loses_only_the_last_lines(tmp_path: Path, up: Recorder) -> None:
    with running(up.url, PLIMSOLL_RECORD=str(tmp_path)) as proxy:
        for number in range(5):
            ask(proxy, number)
        eventually(lambda: sum(line["api"] == "chat" for line in read(tmp_path)) == 5, 30)
        ask(proxy, 6)
        proxy.process.kill()
        proxy.process.wait(20)
    assert sum(line["api"] == "chat" for line in read(tmp_path)) in (5, 6)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no limits of other processes")
def test_a_disk_that_is_full_costs_no_request_and_is_told_once(tmp_path: Path, up: Recorder) -> None:
    with running(up.url, PLIMSOLL_RECORD=str(tmp_path), PLIMSOLL_RECORD_CONTENT="bodies") as proxy:
        ask(proxy, 0)
        eventually(lambda: read(tmp_path), 30)
        before = resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        for number in range(1, 4):
            ask(proxy, number)
            eventually(partial(has_failed, proxy, number), 30)
        assert len(proxy.log("requests are not recorded")) == 1
        assert "File too large" in proxy.log("requests are not recorded")[0]
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, before)
        ask(proxy, 9)
        assert proxy.log("requests are recorded again", 20)
        assert proxy.stop(60) == 0
    questions = [line["request"]["messages"][0]["content"] for line in read(tmp_path) if line["api"] == "chat"]
    assert questions == ["Question 0", "Question 9"]
