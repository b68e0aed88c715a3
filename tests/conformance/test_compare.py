"""What the comparison of two runs sees: a result, a request, a byte that is another one."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import compare


def xml(folder: Path, way: str, cases: dict[str, str]) -> None:
    told = "".join(
        f'<testcase classname="tests.a" name="{name}">{"" if kind == "passed" else f"<{kind}/>"}</testcase>'
        for name, kind in cases.items()
    )
    (folder / f"{way}.xml").write_text(f"<testsuites><testsuite>{told}</testsuite></testsuites>")


def asked(target: str = "/chat", body: bytes = b"{}", here: str = "127.0.0.1:1", **headers: str) -> dict[str, Any]:
    pairs = [["Host", here], ["Connection", "keep-alive"], *([name, value] for name, value in headers.items())]
    encoded = base64.b64encode(body).decode()
    return {"here": here, "method": "POST", "target": target, "headers": pairs, "body": encoded}


def requests(folder: Path, way: str, made: Sequence[dict[str, Any]]) -> None:
    (folder / f"{way}.jsonl").write_text("".join(json.dumps(request) + "\n" for request in made))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs that are the same."""
    for way in ("straight", "through"):
        xml(tmp_path, way, {"one": "passed", "two": "skipped"})
        requests(tmp_path, way, [asked(), asked(), asked("/files")])
    return tmp_path


def test_two_runs_that_are_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(str(folder), "2") == 0
    assert capsys.readouterr().out.splitlines() == [
        "straight  2 tests: {'passed': 1, 'skipped': 1}",
        "through   2 tests: {'passed': 1, 'skipped': 1}",
        "requests  3 straight, 3 through; 2 distinct",
        "the same both ways",
    ]


def test_a_test_with_another_result_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml(folder, "through", {"one": "failure", "two": "skipped"})
    assert compare.main(str(folder), "2") == 1
    assert "tests.a::one: passed straight, failure through" in capsys.readouterr().out


def test_a_suite_that_did_not_run_proves_nothing(folder: Path) -> None:
    for way in ("straight", "through"):
        xml(folder, way, {"one": "passed"})
    assert compare.differences(folder, 2) == ["fewer than 2 tests ran"]


@pytest.mark.parametrize(
    "other",
    [
        [asked(), asked("/files")],
        [asked(), asked(body=b"{ }"), asked("/files")],
        [asked(), asked("/chat?"), asked("/files")],
        [asked(), asked(authorization="x"), asked("/files")],
        [asked(), asked(), asked("/files", here="127.0.0.1:9") | {"here": "127.0.0.1:1"}],
    ],
)
def test_a_request_that_is_another_one_is_seen(folder: Path, other: list[dict[str, Any]]) -> None:
    requests(folder, "through", other)
    assert compare.differences(folder, 2)


def test_the_order_the_port_and_what_is_made_up_at_random_are_not_compared(folder: Path) -> None:
    parts: Any = {"content-type": 'multipart/form-data; boundary="abc"'}
    requests(folder, "straight", [asked("/a"), asked("/b", b"--abc\r\nx\r\n--abc--", **parts)])
    other: Any = {"Content-Type": 'multipart/form-data; boundary="def"'}
    made = [asked("/b", b"--def\r\nx\r\n--def--", "127.0.0.1:2", **other), asked("/a", here="127.0.0.1:2")]
    requests(folder, "through", made)
    assert compare.differences(folder, 2) == []


def test_many_differences_are_counted_and_some_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests(folder, "through", [asked(f"/{i}") for i in range(50)])
    assert compare.main(str(folder), "2") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "52 differences"
    assert len(lines) == 3 + compare.SHOWN + 1
