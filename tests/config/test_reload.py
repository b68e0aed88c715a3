"""Files that change are loaded again; wrong ones are reported once and change nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from proxy.config import reload as module
from proxy.config.reload import MAX_LINES, Reloader, signature
from proxy.errors import ConfigError


class Follower:
    """What a reloader loads, adopts and reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.adopted: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.now = 1_000.0
        self.reloader = Reloader(
            [folder], self.load, self.adopted.append, lambda text, **more: self.events.append((text, more)), self.wall
        )

    def load(self) -> str:
        text = (self.folder / "ladder.toml").read_text()
        if "wrong" in text:
            raise ConfigError("\n".join(text.split()))
        if "bug" in text:
            raise ZeroDivisionError("a key")
        return text

    def wall(self) -> float:
        self.now += 1
        return self.now

    def polls(self, count: int) -> None:
        async def poll() -> None:
            for _ in range(count):
                await self.reloader.poll()

        asyncio.run(poll())

    def write(self, text: str) -> None:
        (self.folder / "ladder.toml").write_text(text)


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    (tmp_path / "ladder.toml").write_text("first")
    return Follower(tmp_path)


def test_files_that_stay_the_same_are_not_loaded(follower: Follower) -> None:
    follower.polls(3)
    assert (follower.adopted, follower.events) == ([], [])
    assert follower.reloader.valid and follower.reloader.loaded_at == 1_001


def test_a_changed_file_is_loaded_once_it_stays_the_same(follower: Follower) -> None:
    follower.write("second, in part")
    follower.polls(1)
    follower.write("second")
    follower.polls(1)
    assert follower.adopted == []
    follower.polls(3)
    assert follower.adopted == ["second"]
    assert follower.reloader.reloads() == {("success",): 1, ("failure",): 0}
    assert follower.reloader.loaded_at == 1_002
    assert [text for text, _ in follower.events] == ["rules and keys are reloaded"]


def test_a_wrong_file_changes_nothing_and_is_reported_once_with_every_problem(follower: Follower) -> None:
    follower.write("wrong:1 wrong:2")
    follower.polls(4)
    assert follower.adopted == []
    told = "rules and keys are not reloaded, the old ones stay"
    assert follower.events == [(told, {"problem": "wrong:1"}), (told, {"problem": "wrong:2"})]
    assert not follower.reloader.valid
    assert follower.reloader.reloads() == {("success",): 0, ("failure",): 1}
    assert follower.reloader.loaded_at == 1_001
    follower.write("right")
    follower.polls(2)
    assert follower.adopted == ["right"] and follower.reloader.valid


def test_a_thousand_problems_do_not_flood_the_log(follower: Follower) -> None:
    follower.write("\n".join(f"wrong:{i}" for i in range(1_000)))
    follower.polls(2)
    assert len(follower.events) == MAX_LINES + 1
    assert follower.events[-1] == ("rules and keys have further problems", {"count": 1_000 - MAX_LINES})


def test_a_bug_of_ours_changes_nothing_and_its_text_is_not_logged(follower: Follower) -> None:
    follower.write("a bug")
    follower.polls(2)
    assert follower.adopted == [] and not follower.reloader.valid
    assert follower.events == [("rules and keys are not reloaded, the old ones stay", {"kind": "ZeroDivisionError"})]


def test_a_request_loads_at_once_also_what_has_not_changed(follower: Follower) -> None:
    follower.reloader.request()
    follower.polls(2)
    assert follower.adopted == ["first"]


def test_a_folder_that_vanishes_is_a_problem_and_its_return_is_a_change(follower: Follower) -> None:
    shutil.move(follower.folder, f"{follower.folder}-away")
    follower.polls(2)
    assert follower.adopted == [] and not follower.reloader.valid
    shutil.move(f"{follower.folder}-away", follower.folder)
    follower.polls(2)
    assert follower.adopted == ["first"]


def test_it_follows_until_it_is_cancelled(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.001)

    async def follow() -> None:
        watch = asyncio.create_task(follower.reloader.watch())
        await asyncio.sleep(0)
        follower.write("second")
        async with asyncio.timeout(20):
            while follower.adopted != ["second"]:
                await asyncio.sleep(0.001)
            follower.reloader.request()
            while follower.adopted != ["second", "second"]:
                await asyncio.sleep(0.001)
        watch.cancel()
        await asyncio.wait([watch])
        assert watch.cancelled()

    asyncio.run(follow())


def test_without_folders_only_a_request_loads() -> None:
    loads: list[int] = []

    async def follow() -> None:
        reloader = Reloader([], lambda: 1, loads.append, lambda text, **more: None)
        watch = asyncio.create_task(reloader.watch())
        await asyncio.sleep(0.01)
        assert loads == []
        reloader.request()
        async with asyncio.timeout(20):
            while loads != [1]:
                await asyncio.sleep(0.001)
        watch.cancel()

    asyncio.run(follow())


def version(folder: Path, name: str, text: str) -> None:
    """A version of a config map, which a swap of one link shows."""
    (folder / name / "ladders").mkdir(parents=True)
    (folder / name / "ladder.toml").write_text(text)
    (folder / name / "ladders" / "mine.toml").write_text(text)
    (folder / "..new").symlink_to(name)
    (folder / "..new").rename(folder / "..data")


def test_the_swap_of_a_link_by_kubernetes_is_a_change(tmp_path: Path) -> None:
    version(tmp_path, "..1", "same")
    (tmp_path / "ladder.toml").symlink_to("..data/ladder.toml")
    (tmp_path / "ladders").symlink_to("..data/ladders")
    first = signature([tmp_path])
    assert first == signature([tmp_path]) != ()
    version(tmp_path, "..2", "same")
    os.utime(tmp_path / "..2" / "ladder.toml", ns=(0, 0))
    assert signature([tmp_path]) != first


@pytest.mark.parametrize("path", ["ladder.toml", "ladders/mine.toml", "lorebooks/town.md"])
def test_a_file_that_is_written_added_or_removed_is_a_change(path: str, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    seen = [signature([tmp_path])]
    file.write_text("one")
    seen.append(signature([tmp_path]))
    file.write_text("two!")
    seen.append(signature([tmp_path]))
    assert len(set(seen)) == 3
    file.unlink()
    assert signature([tmp_path]) not in seen[1:]


def test_what_is_not_there_or_leads_nowhere_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    assert signature([tmp_path, tmp_path / "none"]) == ()
