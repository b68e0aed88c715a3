"""Puts a question to all workers: the one that serves the page asks the others through Unix sockets in their folder.

Nothing is sent before somebody looks. A worker that does not answer in time is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from proxy.admin.local import Local, Question
from proxy.observe.log import event

ANSWER_S = 1.0
MAX_QUESTION, MAX_ANSWER = 64 << 10, 64 << 20  # bytes
MAX_PATH = 100  # bytes of a socket's path: the system allows about 107
PREFIX = "page-"


class Peers:
    """The workers. `folder` is the one that they share, None for a single worker."""

    def __init__(self, local: Local, folder: Path | None = None) -> None:
        self.local = local
        self._folder = folder
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Answers the other workers from now on. Never raises: without a socket they leave this one out."""
        if self._folder is None:
            return
        path = self._path
        try:
            if len(str(path).encode()) > MAX_PATH:
                raise OSError("the path of the folder for metrics is too long")
            path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, str(path))
            path.chmod(0o600)
        except OSError as error:
            event("the page shows one worker only: they cannot reach one another", reason=error.strerror or str(error))

    @property
    def _path(self) -> Path:
        assert self._folder is not None
        return self._folder / f"{PREFIX}{self.local.recent.worker}"

    async def close(self) -> None:
        """Answers no more."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def ask(self, question: Question) -> list[Any]:
        """The answers of all workers that respond, this one's first."""
        mine = self.local.answer(question)
        if self._folder is None:
            return [mine]
        paths = sorted(path for path in self._folder.glob(f"{PREFIX}*") if path != self._path)
        payload = msgspec.msgpack.encode(question)
        others = await asyncio.gather(*(_asked(path, payload) for path in paths))
        return [mine, *(answer for reached, answer in others if reached)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one question."""
        try:
            async with asyncio.timeout(ANSWER_S):
                question: Mapping[str, Any] = msgspec.msgpack.decode(await _read(reader, MAX_QUESTION))
                await _write(writer, msgspec.msgpack.encode(self.local.answer(question)))
        except (OSError, ValueError, KeyError, TypeError, TimeoutError, EOFError, msgspec.MsgspecError):
            pass  # the worker that asked has gone, or is of another version
        except Exception as error:  # a bug of ours: the others leave this worker out
            event("the page's question failed", error=type(error).__name__)
        finally:
            writer.close()


async def _asked(path: Path, payload: bytes) -> tuple[bool, Any]:
    """Whether a worker answered, and what."""
    with contextlib.suppress(OSError, TimeoutError, EOFError, ValueError, msgspec.MsgspecError):
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
            try:
                await _write(writer, payload)
                return True, msgspec.msgpack.decode(await _read(reader, MAX_ANSWER))
            finally:
                writer.close()
    return False, None


async def _read(reader: asyncio.StreamReader, most: int) -> bytes:
    """One message: its length in four bytes, and its bytes."""
    length = int.from_bytes(await reader.readexactly(4))
    if length > most:
        raise ValueError("too long")
    return await reader.readexactly(length)


async def _write(writer: asyncio.StreamWriter, payload: bytes) -> None:
    writer.write(len(payload).to_bytes(4) + payload)
    await writer.drain()
