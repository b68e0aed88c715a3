"""Follows the files of rules and keys: loads them again when they change, and keeps what it has if they are wrong.

Theory of operation
===================

Every `POLL_S` seconds a thread reads the metadata of the files, never their content. Kubernetes replaces a mounted
config map or secret by swapping a symbolic link, which changes what each path leads to; so does every way of writing a
file. Changed files are loaded only when two polls in a row have seen the same, so that a folder that is being written
is not read half. `request` (SIGHUP) loads at once, changed or not.

Loading and checking run in a thread too. Only if all of it is valid, it is adopted, on the event loop and as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from proxy.errors import ConfigError

POLL_S = 2.0
MAX_LINES = 20  # of one failure in the log
SUBFOLDERS = ("ladders", "lorebooks")
SUCCESS, FAILURE = "success", "failure"
T = TypeVar("T")
Stamp = tuple[str, int, int, int, int]  # path, device, inode, size and time of modification in ns
Signature = tuple[Stamp, ...]


def signature(folders: Sequence[Path]) -> Signature:
    """What changes if a file of these folders or of their folders of rules changes. Never raises: what is not there,
    or cannot be read, is left out."""
    return tuple(sorted(stamp for folder in folders for stamp in _stamps(folder)))


def _stamps(folder: Path) -> Iterator[Stamp]:
    for name in ("", *SUBFOLDERS):
        with contextlib.suppress(OSError), os.scandir(folder / name) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it was removed in between
                    found = entry.stat()
                    yield entry.path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Reloader(Generic[T]):
    """Follows the files of `folders`. `load` runs in a thread and raises `ConfigError` with one problem per line;
    `adopt` gets what it returned, on the event loop. `event` receives messages for the log.

    Must be created before the first load: a file that changes later is loaded again.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        load: Callable[[], T],
        adopt: Callable[[T], None],
        event: Callable[..., None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folders, self._load, self._adopt, self._event, self._wall = folders, load, adopt, event, wall
        self._loaded = self._seen = signature(folders)
        self._requested = asyncio.Event()
        self._counts = {(SUCCESS,): 0, (FAILURE,): 0}
        self.valid = True  # whether the last load succeeded
        self.loaded_at = wall()  # of the last load that succeeded, in seconds since 1970

    def reloads(self) -> dict[tuple[str], int]:
        """Loads since the start, by result."""
        return self._counts

    def request(self) -> None:
        """Loads again soon, whether or not a file has changed."""
        self._requested.set()

    async def watch(self) -> None:
        """Follows the files until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), POLL_S if self._folders else None)
            await self.poll()

    async def poll(self) -> None:
        """Loads the files if they have changed and are the same as at the last poll, or if that was requested."""
        before, self._seen = self._seen, await asyncio.to_thread(signature, self._folders)
        if self._requested.is_set() or before == self._seen != self._loaded:
            self._requested.clear()
            self._loaded = self._seen  # also if it fails: wrong files are reported once
            await self._reload()

    async def _reload(self) -> None:
        try:
            self._adopt(await asyncio.to_thread(self._load))
        except ConfigError as error:
            self._fail([{"problem": line} for line in str(error).splitlines()])
        except Exception as error:  # a bug of ours must not end the watch; its text may contain a key
            self._fail([{"kind": type(error).__name__}])
        else:
            self._counts[SUCCESS,] += 1
            self.valid, self.loaded_at = True, self._wall()
            self._event("rules and keys are reloaded")

    def _fail(self, problems: Sequence[dict[str, str]]) -> None:
        self._counts[FAILURE,] += 1
        self.valid = False
        for problem in problems[:MAX_LINES]:
            self._event("rules and keys are not reloaded, the old ones stay", **problem)
        if len(problems) > MAX_LINES:
            self._event("rules and keys have further problems", count=len(problems) - MAX_LINES)
