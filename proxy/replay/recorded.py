"""One recorded request, as every reader gives it; and what a reader could not use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from proxy.model.lenient_json import RawFields
from proxy.model.outcome import Usage

Headers = tuple[tuple[bytes, bytes], ...]


class Figures(msgspec.Struct, frozen=True):
    """What a recording says of a request itself, in tokens; all that is known of it where its body is not recorded."""

    prompt: int | None = None
    prompt_sent: int | None = None
    load: float | None = None
    steps: tuple[tuple[str, int, int], ...] = ()


class Recorded(msgspec.Struct, frozen=True):
    """A request that was sent once.

    `body`: its JSON; empty where only its figures are recorded. `at`: when it was sent, in seconds since 1970; None if
    unknown. `path`: of the URL, or the first path of its API; empty if unknown: then the body decides. `model`: of a
    body that does not name it. `caller`: whose it is, in any form; `name`: what its operator calls it; `keys`: hashes
    of its keys, as callers.toml has them. `usage`, `status`: of the answer; None, 0 if unknown. `headers`: control
    headers. `missing`: what the request had and the recording has not. `redacted`: its words are not those that were
    sent. `upstream`: the name of the one that it was sent to; None if unknown. `provider`: litellm's name of whoever
    answered; empty if unknown. `model_sent`: of an answer whose body is not recorded; empty: as `model`.
    """

    body: bytes = b""
    at: float | None = None
    path: str = ""
    model: str = ""
    app: str = ""
    caller: str = ""
    usage: Usage | None = None
    status: int = 0
    headers: Headers = ()
    missing: tuple[str, ...] = ()
    redacted: bool = False
    figures: Figures | None = None
    name: str = ""
    keys: tuple[str, ...] = ()
    upstream: str | None = None
    provider: str = ""
    model_sent: str = ""


class Skipped(msgspec.Struct, frozen=True):
    """Something in the input that is no request, or none that can be used. `why` has nothing of its content. `other`:
    it was never meant to be a request, so it is not counted as one that was not understood."""

    why: str
    other: bool = False


Found = Recorded | Skipped
MAX_SESSION = 32 << 20  # bytes of a conversation that is rebuilt from a session's lines
TOO_LONG = Skipped(f"a conversation of more than {MAX_SESSION >> 20} MiB, which is begun anew")


class Read(Protocol):
    """Reads the entries of one file, in their order."""

    def __call__(self, entry: bytes, fields: RawFields) -> Iterable[Found]:
        """What an entry holds: a line of JSON Lines, an item of a list, a row of a table, or a whole document."""

    def end(self) -> Iterable[Found]:
        """What is left at the end of the file."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One format. A module of `proxy/replay/readers/` defines it as `READER`.

    `recognises` says whether an entry with these fields is of the format. `start` makes what reads one file. The first
    format in the order of `rank`, then of their names, that recognises an entry reads it.
    """

    name: str
    recognises: Recognises
    start: Start
    rank: int = 0


class Recognises(Protocol):
    """Whether an entry with these fields is of a format."""

    def __call__(self, fields: RawFields) -> bool:
        """True if it is."""


class Start(Protocol):
    """Makes what reads one file."""

    def __call__(self) -> Read:
        """A new one."""


class EachEntry:
    """A `Read` of a format whose entries do not depend on one another."""

    def __init__(self, read: ReadEntry) -> None:
        self._read = read

    def __call__(self, entry: bytes, fields: RawFields) -> Iterable[Found]:
        """See `Read`."""
        return self._read(entry, fields)

    def end(self) -> Iterable[Found]:
        """Nothing is left."""
        return ()


class ReadEntry(Protocol):
    """Reads one entry."""

    def __call__(self, entry: bytes, fields: RawFields) -> Iterable[Found]:
        """What it holds."""
