"""The sets of label values that all workers tell apart: a bounded number of each kind, the same in every worker.

Theory of operation
===================

The sets are in memory that the workers share, one behind the other; none is ever removed, as a series that vanishes and
comes back looks like a restart to Prometheus. Each worker keeps what it has read. Only a set that it does not know
costs more: one look at how much is written, and if a further set may be added, a lock of the system. That lock ends
with its process, and what was written becomes valid last: a worker that is killed leaves nothing half done.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator

import msgspec

from proxy.observe.metrics.buffers import Labels

SIZE = 1 << 18
MAX_SET_BYTES = 1_024  # a longer set is never told apart
HEADER = struct.Struct("=Q")  # up to where sets are written
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Labels] = msgspec.msgpack.Decoder(Labels)


class SharedLabels:
    """Sets of label values by kind. Must be created before the workers are forked, which inherit them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SIZE)
        self._lock = _file()
        weakref.finalize(self, os.close, self._lock)
        HEADER.pack_into(self._memory, 0, HEADER.size)
        self._read_to = HEADER.size
        self._known: set[Labels] = set()
        self._counts: Counter[str] = Counter()

    def admit(self, kind: str, labels: Labels, most: int) -> bool:
        """Whether a set is told apart, or is from now on, as there are fewer than `most` of its kind."""
        entry = (kind, *labels)
        if entry in self._known:
            return True
        if HEADER.unpack_from(self._memory)[0] != self._read_to:
            with self._locked():
                self._read()
            if entry in self._known:
                return True
        if self._counts[kind] >= most:
            return False
        with self._locked():
            self._read()
            return entry in self._known or (self._counts[kind] < most and self._write(entry))

    def is_first(self, kind: str) -> bool:
        """Whether no worker has asked this of a kind before."""
        with self._locked():
            self._read()
            return (kind,) not in self._known and self._write((kind,))

    def _write(self, entry: Labels) -> bool:
        written = _ENCODER.encode(entry)
        start, end = self._read_to, self._read_to + HEADER.size + len(written)
        if len(written) > MAX_SET_BYTES or end > SIZE:
            return False
        self._memory[start:end] = HEADER.pack(len(written)) + written
        HEADER.pack_into(self._memory, 0, end)
        self._read()
        return True

    def _read(self) -> None:
        """Takes over what other workers have written."""
        end = HEADER.unpack_from(self._memory)[0]
        while self._read_to < end:
            start = self._read_to + HEADER.size
            self._read_to = start + HEADER.unpack_from(self._memory, self._read_to)[0]
            entry = _DECODER.decode(self._memory[start : self._read_to])
            self._known.add(entry)
            self._counts[entry[0]] += 1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def _file() -> int:
    """The descriptor of a file without a name, to lock."""
    if hasattr(os, "memfd_create"):  # Linux, where a container may have no folder to write to
        return os.memfd_create("labels")
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    return descriptor
