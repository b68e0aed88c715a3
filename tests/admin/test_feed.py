"""Live events: cursors, and queues that lose the oldest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.admin import feed as module
from proxy.admin.feed import MAX_QUEUED, Feed, Viewer, encoded, read, written
from tests.serving import eventually, run


class Workers:
    """Two workers, the second of which had more requests than it tells of."""

    def __init__(self) -> None:
        self.asked: list[dict[str, int]] = []
        self.new = 1

    async def ask(self, question: dict[str, Any]) -> list[dict[str, Any]]:
        self.asked.append(question["after"])
        new = [{"at": 2.0, "id": "b"}] * self.new
        return [
            {"name": "0-a", "count": 5, "entries": [], "skipped": 0},
            {"name": "1-b", "count": 9, "entries": [*new, *([{"at": 1.0, "id": "a"}] * self.new)], "skipped": 3},
        ]


async def overview() -> dict[str, Any]:
    return {"at": 1}


def feed(workers: Workers) -> Feed:
    return Feed(workers, overview)  # type: ignore[arg-type]


def test_an_event_has_its_id_its_name_and_one_line_of_data() -> None:
    assert encoded("requests", {"a": "\n"}, "7") == b'id: 7\nevent: requests\ndata: {"a":"\\n"}\n\n'
    assert encoded("overview", 1) == b"event: overview\ndata: 1\n\n"


def test_a_cursor_survives_its_text() -> None:
    cursor = {"0-1a2b": 41, "1-1a2c": 0}
    assert read(written(cursor)) == cursor
    assert read("") == read(",.,x") == read("a.b") == read("a." + "9" * 30) == {}


def test_a_viewer_that_does_not_read_loses_the_oldest() -> None:
    async def test() -> None:
        viewer = Viewer()
        for i in range(MAX_QUEUED + 3):
            viewer.offer(b"%d," % i)
        assert await viewer.next() == b"3,4,5,6,7,8,9,10,"
        assert await viewer.next() == b""

    run(test())


def test_a_viewer_first_gets_the_overview_and_the_requests_after_its_cursor() -> None:
    async def test() -> None:
        workers = Workers()
        made = feed(workers)
        viewer, first = await made.join("1-b.4")
        assert workers.asked == [{"1-b": 4}]
        assert first.startswith(b"retry: 2000\n\nevent: overview\n")
        tail = b'data: {"requests":[{"at":1.0,"id":"a"},{"at":2.0,"id":"b"}],"skipped":3}\n\n'
        assert first.endswith(b"id: 0-a.5,1-b.9\nevent: requests\n" + tail)
        made.leave(viewer)
        assert made._task is None

    run(test())


def test_the_task_runs_while_there_are_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.01)
    monkeypatch.setattr(module, "WAIT_S", 20.0)  # what a viewer waits for comes, however slow the machine is

    async def test() -> None:
        workers = Workers()
        made = feed(workers)
        one, _ = await made.join("")
        other, _ = await made.join("")
        found = await one.next()
        assert found.startswith(b"id: 0-a.5") and (await other.next()).startswith(b"id: 0-a.5")
        await eventually(lambda: len(workers.asked) > 4, 30)
        assert workers.asked[-1] == {"0-a": 5, "1-b": 9}
        made.close()
        count = len(workers.asked)
        await asyncio.sleep(0.1)
        assert len(workers.asked) == count and not made.viewers

    run(test())


def test_a_failure_ends_no_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.01)
    monkeypatch.setattr(module, "WAIT_S", 20.0)  # what a viewer waits for comes, however slow the machine is

    async def test() -> None:
        workers = Workers()
        made = feed(workers)
        viewer, _ = await made.join("")
        whole, calls = workers.ask, 0

        async def failing(question: dict[str, Any]) -> list[dict[str, Any]]:
            nonlocal calls
            calls += 1
            if calls < 3:
                raise OSError
            return await whole(question)

        monkeypatch.setattr(workers, "ask", failing)
        await eventually(lambda: calls > 3, 30)
        assert await viewer.next()
        made.close()

    run(test())
