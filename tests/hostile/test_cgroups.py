"""N3: a cgroup near its limit: whatever its files say, the budget of bodies is one that serves."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.http.memory_budget import Budget
from proxy.http.memory_limit import LEAST, PROCESS, derived, memory_limit, read_text

MIB = 1 << 20
MACHINE = {"/proc/meminfo": "MemTotal:       1048576 kB\n"}
V1, V2 = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
GARBAGE = (
    *("", "\n", " ", "max", "max\n", "MAX", "-1", "-4096\n", "+1", "1e9", "0x1000", "12 34", "1_000", "nan", "inf"),
    *("²", "٣٤", "１２３", "①", "\x00", "7\x00", "�", "9" * 5_000, "9223372036854771712\n", "18446744073709551615"),
)


@pytest.mark.parametrize("name", [V1, V2])
@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_N3_a_limit_that_is_none_leaves_the_machines(name: str, text: str) -> None:
    found = memory_limit((MACHINE | {name: text}).get)
    assert found == 1 << 30
    assert LEAST < derived(found, 1) < found


@pytest.mark.parametrize(
    "text", ["MemTotal: " + "9" * 5_000 + " kB", "MemTotal: kB", "MemTotal:\t٣ kB", "\x00", "MemTotal"]
)
def test_N3_a_machine_that_says_nothing_leaves_the_least_or_the_cgroups_limit(text: str) -> None:
    assert memory_limit({"/proc/meminfo": text}.get) is None
    assert derived(None, 1) == LEAST
    assert memory_limit({"/proc/meminfo": text, V2: "536870912\n"}.get) == 512 * MIB


@pytest.mark.parametrize(
    "lines",
    ["", ":", "::", "0", "0:", "0::", "0::\n0::\n", "x:memory", "0::/../../etc", ":memory:", "4:memory,cpu:/a/b/c:d"],
)
def test_N3_a_list_of_cgroups_that_makes_no_sense_is_passed_over(lines: str) -> None:
    for more in ({}, {V1: "536870912\n"}, {V2: "536870912\n"}):
        files: Mapping[str, str] = {**MACHINE, "/proc/self/cgroup": lines, **more}
        assert memory_limit(files.get) == (512 * MIB if more else 1 << 30)


@pytest.mark.parametrize("limit", [1, 4096, MIB, PROCESS - 1, PROCESS, PROCESS + 1, 200 * MIB, 300 * MIB])
@pytest.mark.parametrize("workers", [1, 2, 16])
def test_N3_a_limit_below_what_the_processes_take_leaves_a_budget_that_serves(limit: int, workers: int) -> None:
    budget = derived(memory_limit({V2: f"{limit}\n"}.get), workers)
    assert budget >= LEAST
    Budget(budget, workers)


def test_N3_no_files_at_random_make_a_budget_that_refuses_everything(tmp_path: Path) -> None:
    chance = random.Random(3)
    for number in range(300):
        raw = chance.choice((chance.randbytes(40), str(chance.randrange(1 << 66)).encode(), b"max", b""))
        path = tmp_path / str(number)
        path.write_bytes(raw)
        files = {V1: read_text(str(path)) or "", V2: read_text(str(path)) or ""}
        found = memory_limit((files | {"/proc/self/cgroup": read_text(str(path)) or ""}).get)
        assert found is None or 0 < found < 1 << 60
        assert derived(found, chance.choice((1, 2, 64))) >= LEAST
    assert read_text(str(tmp_path)) is None  # a folder
