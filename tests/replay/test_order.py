"""Requests of several files in the order of their times."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from proxy.replay import order
from proxy.replay.files import Source
from proxy.replay.order import Coverage, in_order


def call(at: float | None, name: str = "m") -> dict[str, Any]:
    """A logged call at a time."""
    return {
        "call_type": "completion",
        "model": name,
        "messages": [{"role": "user", "content": "Hi"}],
        "model_parameters": {},
        "startTime": at,
    }


def merged(folder: Path, *contents: list[Any]) -> tuple[list[tuple[float | None, int]], Coverage]:
    """Times and files of the requests in files with these entries, and the coverage."""
    sources = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.jsonl"
        path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in content))
        sources.append(Source(path))
    coverage = Coverage()
    return [(one.recorded.at, one.file) for one in in_order(sources, coverage)], coverage


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    found, coverage = merged(tmp_path, [call(10), call(30)], [call(20), call(40)], [call(5)])
    assert found == [(5, 2), (10, 0), (20, 1), (30, 0), (40, 1)]
    assert (coverage.files, coverage.requests, coverage.timed, coverage.late) == (3, 5, 5, 0)


def test_a_request_that_comes_a_little_late_is_put_in_its_place(tmp_path: Path) -> None:
    found, coverage = merged(tmp_path, [call(30), call(10), call(20)])
    assert [at for at, _ in found] == [10, 20, 30] and coverage.late == 0


def test_one_that_comes_too_late_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MAX_WAITING", 1)
    found, coverage = merged(tmp_path, [call(30), call(40), call(50), call(10)])
    assert [at for at, _ in found] == [30, 40, 10, 50] and coverage.late == 1


def test_what_waits_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MAX_WAITING_BYTES", 1)
    assert merged(tmp_path, [call(30), call(10)])[1].late == 1


def test_requests_without_a_time_keep_their_place(tmp_path: Path) -> None:
    names = [call(None, "a"), call(20, "b"), call(None, "c"), call(30, "d")]
    found, coverage = merged(tmp_path, names, [call(25, "e")])
    assert found == [(None, 0), (20, 0), (None, 0), (25, 1), (30, 0)] and coverage.timed == 3


@pytest.mark.parametrize("times", [range(10, 1_010, 2), [None] * 500], ids=["later", "none"])
def test_a_thousand_files_are_not_open_at_once(
    times: Iterable[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, opened = 0, 0
    whole = Source.entries

    def counting(self: Source) -> Any:
        nonlocal most, opened
        opened += 1
        most = max(most, opened)
        try:
            yield from whole(self)
        finally:
            opened -= 1

    monkeypatch.setattr(Source, "entries", counting)
    found, _ = merged(tmp_path, *([call(at), call(at and at + 1)] for at in times))
    assert len(found) == 1_000 and most < 10


def test_what_is_not_used_is_counted_by_reason(tmp_path: Path) -> None:
    lines = [call(1), "{broken", "no json", '{"weather": "rain"}', {**call(2), "call_type": "amoderation"}]
    coverage = merged(tmp_path, lines)[1]
    assert coverage.formats == {"LiteLLM": 1}
    assert coverage.skipped == {"a line that is no JSON object": 2, "JSON of no format that is known": 1}
    assert coverage.other == {"a call of LiteLLM that is no request to a model": 1}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    coverage = Coverage()
    assert list(in_order([Source(tmp_path / "absent"), Source(tmp_path / "none")], coverage)) == []
    assert coverage.unreadable == [f"{tmp_path / name}: No such file or directory" for name in ("absent", "none")]


def test_a_bug_of_a_reader_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fields: Any, *names: str) -> None:
        raise LookupError

    monkeypatch.setattr("proxy.replay.readers.litellm._usage", broken)
    found, coverage = merged(tmp_path, [call(1), {"model": "m", "messages": []}])
    assert len(found) == 1 and coverage.skipped == {"an entry that its reader failed on": 1}
