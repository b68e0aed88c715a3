"""Entries of files: lines of JSON Lines, items of a list, rows of a table, documents; packed or not, of any size.

Memory is bounded whatever a file holds. Of JSON Lines and tables one line is kept, of at most `MAX_LINE` bytes; a
longer one is skipped. A document of more than that is read item by item, if it has line ends as it is written for
people. What is packed is unpacked in pieces of `CHUNK` bytes.
"""

from __future__ import annotations

import codecs
import csv
import importlib
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from proxy.model import oversized_json
from proxy.model.lenient_json import BROKEN, raw_fields
from proxy.replay.recorded import Skipped

CHUNK = 1 << 18
MAX_LINE = 64 << 20
MAX_VALUES, VALUE_BYTES = 1 << 16, 32  # that an entry may have, and its bytes for each one more
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MARK = b"\xef\xbb\xbf"  # that some programs write before UTF-8
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # older PowerShells write it when output goes to a file
# Endings of the files that a folder is searched for.
ENDINGS = frozenset({".json", ".jsonl", ".ndjson", ".csv", ".har", ".gz", ".zst"})
BLANK = b" \t\r\n\0"
LIST = msgspec.json.Decoder(list[msgspec.Raw])
TOO_LONG = Skipped(f"a line of more than {MAX_LINE >> 20} MiB")
TOO_MANY = Skipped("an entry with more values than are decoded")
NO_ROW = Skipped("a row of a table that cannot be read")
NO_JSON = Skipped("a line that is no JSON object")

Entry = bytes | Skipped


def files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """The files that are named, and those in the folders that are, in the order of their names."""
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.rglob("*") if one.suffix.lower() in ENDINGS and one.is_file())
        else:
            yield path


class Source:
    """One file. `position` is how many bytes of it were read; `problem` says why it ended too early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.problem = ""

    @property
    def name(self) -> str:
        """Its path as reports have it. Bytes that are not UTF-8 become question marks, for JSON cannot have them."""
        return str(self.path).encode(errors="replace").decode()

    def entries(self) -> Iterator[Entry]:
        """Its entries in order. Raises `OSError` if it cannot be opened or read."""
        with self.path.open("rb") as file:
            yield from _entries(self._chunks(file))
        if self.problem:
            yield Skipped(self.problem)

    def _read(self, file: BinaryIO) -> bytes:
        chunk = file.read(CHUNK)
        self.position += len(chunk)
        return chunk

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        """What the file holds, unpacked."""
        head = self._read(file)
        if head.startswith(GZIP):
            yield from self._gzip(file, head)
        elif head.startswith(ZSTD):
            yield from self._zstd(file)
        else:
            decoder = codecs.getincrementaldecoder("utf-16")("replace") if head[:2] in UTF_16 else None
            while head:
                yield head if decoder is None else decoder.decode(head).encode()
                head = self._read(file)

    def _gzip(self, file: BinaryIO, packed: bytes) -> Iterator[bytes]:
        """One member after another. What came before damage counts: who wrote the file may have died."""
        member, begun = zlib.decompressobj(31), False
        while packed:
            try:
                unpacked = member.decompress(packed, CHUNK)
            except zlib.error:
                self.problem = "the packed data is damaged: what comes behind it is lost"
                return
            begun = True
            if unpacked:
                yield unpacked
            packed = member.unused_data.lstrip(b"\0") if member.eof else member.unconsumed_tail
            packed = packed or self._read(file)
            if member.eof:
                member, begun = zlib.decompressobj(31), False
        if begun:
            self.problem = "the packed data ends too early"

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        try:
            zstd: Any = importlib.import_module("compression.zstd")  # from Python 3.14 on
        except ImportError:
            self.problem = "packed with zstd, which needs Python 3.14: unpack it first"
            return
        file.seek(0)
        try:
            with zstd.open(file) as unpacked:
                while chunk := unpacked.read(CHUNK):
                    self.position = file.tell()
                    yield chunk
        except (zstd.ZstdError, EOFError):
            self.problem = "the packed data is damaged, or ends too early"


def _entries(chunks: Iterator[bytes]) -> Iterator[Entry]:
    """The entries in these bytes, whose form their first line shows."""
    lines = _Lines(chunks)
    first = lines.head()
    if first[:1] not in (b"{", b"["):
        yield from _table(lines) if b"," in first else (entry for line in lines for entry in _of_line(line))
    elif first[:1] == b"{" and raw_fields(first):
        yield from (entry for line in lines for entry in _of_line(line))
    elif lines.read_whole():
        yield from _document(lines)
    else:
        yield from _items(lines)


class _Lines:
    """The lines in chunks of bytes, without their ends; `TOO_LONG` in place of one that is too long."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._read: deque[bytes] = deque()  # and not yet given out

    def head(self) -> bytes:
        """The first line that is not blank; of a very long one the beginning."""
        chunk = next(self._chunks, b"").removeprefix(MARK).lstrip(BLANK)
        while not chunk and (chunk := next(self._chunks, b"")):
            chunk = chunk.lstrip(BLANK)
        size = 0
        while chunk:
            self._read.append(chunk)
            size += len(chunk)
            if b"\n" in chunk or size > MAX_LINE:
                break
            chunk = next(self._chunks, b"")
        return b"".join(self._read).partition(b"\n")[0]

    def read_whole(self) -> bool:
        """Reads what is left, if it is no more than a line may have. False if it is more."""
        size = sum(map(len, self._read))
        while size <= MAX_LINE:
            if not (chunk := next(self._chunks, b"")):
                return True
            self._read.append(chunk)
            size += len(chunk)
        return False

    def whole(self) -> bytes:
        """What was read."""
        return b"".join(self._read)

    def __iter__(self) -> Iterator[Entry]:
        kept: list[bytes] = []
        size = 0
        while chunk := self._read.popleft() if self._read else next(self._chunks, b""):
            *ends, last = chunk.split(b"\n")
            for end in ends:
                yield TOO_LONG if size + len(end) > MAX_LINE else b"".join((*kept, end))
                kept, size = [], 0
            size += len(last)
            if size > MAX_LINE:
                kept = []
            else:
                kept.append(last)
        if size:
            yield TOO_LONG if size > MAX_LINE else b"".join(kept)


def _of_line(line: Entry) -> Iterator[Entry]:
    if isinstance(line, Skipped):
        yield line
    elif stripped := line.strip(BLANK):
        yield _checked(stripped)


def _checked(entry: bytes) -> Entry:
    """An entry that may be decoded: a hostile one has a value in every second byte."""
    if entry[:1] != b"{":
        return NO_JSON
    most = MAX_VALUES + len(entry) // VALUE_BYTES
    return TOO_MANY if len(entry) > CHUNK and oversized_json.values(entry, most) > most else entry


def _document(lines: _Lines) -> Iterator[Entry]:
    """The items of a list, or one object; else what is in it line by line, for a line may be broken."""
    found = lines.whole().strip(BLANK)
    most = MAX_VALUES + len(found) // VALUE_BYTES
    if len(found) > CHUNK and oversized_json.values(found, most) > most:
        yield TOO_MANY
        return
    try:
        items = LIST.decode(found) if found[:1] == b"[" else None
    except BROKEN:
        items = None
    if items is not None:
        yield from (_checked(bytes(item)) for item in items)
    elif raw_fields(found):
        yield found
    else:
        yield from (entry for line in lines for entry in _of_line(line))


def _items(lines: _Lines) -> Iterator[Entry]:
    """The objects in the lists of a document that is too long to be decoded: those on one line, and those whose first
    and last lines are their braces alone, with the same indentation, as programs write them for people."""
    item: list[bytes] = []
    ends: tuple[bytes, ...] = ()
    size, before = 0, b""
    for line in lines:
        if isinstance(line, Skipped):
            item, before = [], b""
            yield line
            continue
        stripped = line.strip(BLANK)
        if item:
            item.append(line)
            size += len(line)
            if size > MAX_LINE or line.rstrip(BLANK) in ends:
                yield TOO_LONG if size > MAX_LINE else _checked(b"\n".join(item).strip(BLANK).rstrip(b","))
                item = []
        elif (stripped in (b"{", b"[{") and before[-1:] in (b"[", b",")) or stripped == b"[{":
            indent = line[: len(line) - len(line.lstrip())]
            item, size, ends = [b"{"], 1, (indent + b"}", indent + b"},", indent + b"}]")
        elif stripped[:1] == b"{" and stripped.rstrip(b",]")[-1:] == b"}" and len(stripped) > 2:
            yield _checked(stripped.rstrip(b",]"))
        before = stripped or before


def _table(lines: _Lines) -> Iterator[Entry]:
    """The rows of a table with a head, each as an object of texts."""
    csv.field_size_limit(MAX_LINE)
    problems: list[Skipped] = []
    rows = csv.reader(_texts(lines, problems))
    names: list[str] = []
    while True:
        try:
            row = next(rows)
        except StopIteration:
            yield from problems
            return
        except csv.Error:
            problems.append(NO_ROW)
            continue
        if not names:
            names = row
        elif row:
            yield msgspec.json.encode(dict(zip(names, row, strict=False)))


def _texts(lines: _Lines, problems: list[Skipped]) -> Iterator[str]:
    for line in lines:
        if isinstance(line, Skipped):
            problems.append(line)
        else:
            yield line.decode("utf-8", "replace") + "\n"
