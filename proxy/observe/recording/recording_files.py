"""The files of a recording: batches of lines, each a gzip member, in a folder whose size is bounded.

It does not know what a line is. Several processes may write to one folder, each to files of its own.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from isal import isal_zlib

PATTERN = "plimsoll-*.jsonl.gz"
MAX_FILE_BYTES = 64 << 20  # a file is followed by another at this size, ...
MAX_FILES_SHARE = 8  # ... at this fraction of what is kept, ...
MAX_FILE_S = 3600.0  # ... and at this age
CHECK_BYTES = 1 << 20  # bytes that a process writes between two looks at the folder's size
LEVEL = 1  # of ISA-L, which takes a quarter to a tenth of the time of zlib, for as much or less
GZIP = 31  # zlib's window bits for a gzip member
READ_BYTES = 1 << 16  # that are decompressed at a time; what follows a member is copied


class RecordingFiles:
    """Appends batches of lines to files in `folder`, and removes the oldest files above `max_bytes` in all.

    Not thread-safe. A member is there whole or not at all, so that a crash or a full disk costs the last batch.
    """

    def __init__(self, folder: Path, max_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._max, self._clock = max_bytes, clock
        self._max_file = min(MAX_FILE_BYTES, max(1, max_bytes // MAX_FILES_SHARE))
        self._file: int | None = None
        self._path = folder
        self._size = self._unchecked = self._number = 0
        self._began = 0.0

    def append(self, lines: bytes) -> None:
        """Writes lines, each with its newline. Raises OSError; then none of them is in a file."""
        data = isal_zlib.compress(lines, LEVEL, GZIP)
        self._open_if_due()
        assert self._file is not None
        try:
            _write_all(self._file, data)
        except OSError:
            self._undo()
            raise
        self._size += len(data)
        self._unchecked += len(data)
        if self._unchecked >= min(CHECK_BYTES, self._max_file):
            self._remove_oldest()

    def close(self) -> None:
        """Ends the current file. Another batch begins another one."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open_if_due(self) -> None:
        if self._file is not None:
            is_old = not 0 <= self._clock() - self._began < MAX_FILE_S
            if self._size >= self._max_file or is_old or not os.fstat(self._file).st_nlink:  # somebody removed it
                self.close()
        if self._file is None:
            self._open()

    def _open(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._began = self._clock()
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._began))
        while self._file is None:
            self._path = self.folder / f"plimsoll-{at}-{os.getpid()}-{self._number}.jsonl.gz"
            self._number += 1
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            try:
                self._file = os.open(self._path, flags, 0o600)
            except FileExistsError:  # a former process had this id, in this second
                continue
        self._size = 0
        self._remove_oldest()

    def _undo(self) -> None:
        """Removes what a failed write left; what followed it could not be read."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            self.close()

    def _remove_oldest(self) -> None:
        """Removes the oldest files, also those of other processes, but never the one that is being written here."""
        self._unchecked = 0
        sizes = {path: size for path in self.folder.glob(PATTERN) if (size := _size_of(path)) is not None}
        total = sum(sizes.values())
        for path in sorted(sizes):
            if total <= self._max:
                return
            if path != self._path:
                with contextlib.suppress(OSError):  # what cannot be removed stays; the next oldest goes in its place
                    path.unlink(missing_ok=True)
                    total -= sizes[path]


def problem_of(folder: Path) -> str:
    """Why no recording can be in a folder; empty if one can. It tries: it makes a folder there, and removes it."""
    if folder.is_symlink() and not folder.exists():
        return "is a link to nothing"
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        return f"{'is' if there == folder else 'would be below'} a file, must be a folder"
    try:
        Path(mkdtemp(prefix=".plimsoll-", dir=there)).rmdir()
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return ""


def is_open_to_others(folder: Path) -> bool:
    """Whether a folder is there, and users besides its owner and group may read it or write to it."""
    try:
        return bool(folder.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, without their newlines, in constant memory. A file that is being written or that a crash
    cut off ends with its last whole line. Raises OSError."""
    rest: list[bytes] = []
    for text in _texts(path):
        first, *others = text.split(b"\n")
        rest.append(first)
        if others:
            yield b"".join(rest)
            yield from others[:-1]
            rest = [others[-1]]


def _texts(path: Path) -> Iterator[bytes]:
    """The decompressed pieces of a file; none after one that cannot be decompressed."""
    with path.open("rb") as file:
        machine, data = zlib.decompressobj(GZIP), b""
        while data or (data := file.read(READ_BYTES)):
            try:
                yield machine.decompress(data, READ_BYTES)
            except zlib.error:
                return
            data = machine.unconsumed_tail
            if machine.eof:
                machine, data = zlib.decompressobj(GZIP), machine.unused_data
        yield machine.flush()


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _size_of(path: Path) -> int | None:
    """None if another process has removed it."""
    try:
        return path.stat().st_size
    except OSError:
        return None
