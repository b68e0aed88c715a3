"""How much memory this process may use, by the machine and its cgroups, and how much of it is for bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

PROCESS = 160 << 20  # bytes of one process without bodies: code, encodings, bounded caches
WORKER = 80 << 20  # bytes of each further process; it shares the rest with the first
LEAST = 16 << 20  # bytes; the minimum of a derived budget
UNLIMITED = 1 << 60  # cgroup v1 reports "no limit" as a number near 2**63
BYTES = re.compile("[0-9]{1,20}")  # Python refuses to read numbers of thousands of digits
Read = Callable[[str], str | None]


def derived(limit: int | None, workers: int) -> int:
    """Returns the default budget in bytes: half of the memory `limit` that the processes themselves leave. The other
    half is for connections, streamed data and memory that the allocator keeps."""
    if limit is None:
        return LEAST
    return max(LEAST, (limit - PROCESS - WORKER * (workers - 1)) // 2)


def memory_limit(read: Read) -> int | None:
    """Returns the memory limit of this process in bytes, or None if it is unknown: the least of the machine's memory
    and the limits of its cgroups (v1 and v2). `read` returns the text of a file."""
    return min(_limits(read), default=None)


def _limits(read: Read) -> Iterator[int]:
    machine = re.search(r"^MemTotal:\s+([0-9]{1,19}) kB", read("/proc/meminfo") or "", re.MULTILINE)
    if machine:
        yield int(machine[1]) * 1024
    for line in ["0::/", "1:memory:/", *(read("/proc/self/cgroup") or "").splitlines()]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        for folder in _upwards(path.rstrip("/")):  # a cgroup's limit applies to its children
            text = (read(f"{base}{folder}/{name}") or "").strip()
            if BYTES.fullmatch(text) and int(text) < UNLIMITED:
                yield int(text)


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def read_text(path: str) -> str | None:
    """Returns a file's text, or None if it cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return None
