"""The limit of memory that machine and cgroups state, and the budget that follows from it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from proxy.http.memory_limit import LEAST, PROCESS, WORKER, derived, memory_limit, read_text

MIB = 1 << 20
V1 = {"/proc/self/cgroup": "4:memory:/a/b\n2:cpu:/\n", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n"}
NO_LIMIT = {"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"/proc/meminfo": "MemTotal:       16 kB\nMemFree: 1 kB\n"}, 16 * 1024),
        ({"/proc/meminfo": "MemTotal:       16 kB\n", "/sys/fs/cgroup/memory.max": "8192\n"}, 8192),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"/proc/self/cgroup": "0::/k/pod\n", "/sys/fs/cgroup/k/pod/memory.max": "5\n"}, 5),
        ({"/proc/self/cgroup": "0::/k/pod\n", "/sys/fs/cgroup/k/memory.max": "6\n"}, 6),
        (V1, 1000),
        (V1 | NO_LIMIT, 1000),
        (NO_LIMIT, None),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, 256 * MIB),
    ],
)
def test_the_limit_is_the_least_that_machine_and_cgroups_say(files: Mapping[str, str], limit: int | None) -> None:
    assert memory_limit(files.get) == limit


def test_this_machine_says_something() -> None:
    assert (memory_limit(read_text) or 0) > PROCESS and read_text("/nowhere") is None


def test_the_derived_budget_leaves_room_for_the_processes() -> None:
    assert derived(None, 1) == derived(0, 1) == derived(PROCESS, 4) == LEAST
    assert derived(256 * MIB, 1) == 48 * MIB
    assert derived(512 * MIB, 2) == (512 * MIB - PROCESS - WORKER) // 2
