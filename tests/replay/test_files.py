"""Entries of files in every form, whole and broken, packed and not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.replay import files
from proxy.replay.files import NO_JSON, NO_ROW, TOO_LONG, TOO_MANY, Entry, Source, files_of
from proxy.replay.recorded import Skipped

A, B = {"a": 1}, {"b": "\n\t€"}
LINES = json.dumps(A).encode() + b"\n" + json.dumps(B).encode() + b"\n"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], list[Entry]]:
    """Writes a file and reads its entries."""

    def entries(content: bytes) -> list[Entry]:
        (tmp_path / "file").write_bytes(content)
        return list(Source(tmp_path / "file").entries())

    return entries


Reading = Callable[[bytes], list[Entry]]


def values(found: list[Entry]) -> list[Any]:
    """The entries, decoded."""
    return [one.why if isinstance(one, Skipped) else json.loads(one) for one in found]


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES.rstrip(),
        LINES.replace(b"\n", b"\r\n\r\n"),
        b"\xef\xbb\xbf\n \n" + LINES,
        b"\0\0" + LINES,
        LINES.decode().encode("utf-16"),
        b"\xfe\xff" + LINES.decode().encode("utf-16-be"),
        json.dumps([A, B]).encode(),
        json.dumps([A, B], indent=2).encode(),
        gzip.compress(LINES, mtime=0),
        gzip.compress(LINES[:12], mtime=0) + gzip.compress(LINES[12:], mtime=0),
        gzip.compress(LINES, mtime=0) + b"\0" * 600,
        gzip.compress(json.dumps([A, B], indent=1).encode(), mtime=0),
    ],
)
def test_every_form_has_the_same_entries(read: Reading, content: bytes) -> None:
    assert values(read(content)) == [A, B]


def test_one_document_is_one_entry(read: Reading) -> None:
    assert values(read(json.dumps({"log": {"entries": [A]}}, indent=2).encode())) == [{"log": {"entries": [A]}}]


def test_a_table_has_an_entry_for_each_row(read: Reading) -> None:
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerows([("id", "input"), ("1", '[{"role": "user",\n"content": "a, b"}]'), (), ("2", "x\0y")])
    assert values(read(written.getvalue().encode())) == [
        {"id": "1", "input": '[{"role": "user",\n"content": "a, b"}]'},
        {"id": "2", "input": "x\0y"},
    ]


def test_a_broken_line_does_not_end_the_file(read: Reading) -> None:
    lines = [b'{"a": 1}', b'{"a":', b"no json", b"\0\xff", b'{"b": 2}']
    assert read(b"\n".join(lines)) == [b'{"a": 1}', b'{"a":', NO_JSON, NO_JSON, b'{"b": 2}']


def test_a_row_that_is_too_long_does_not_end_a_table(read: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    unclosed = b'"' + b"x\n" * 200
    found = read(b"a,b\n1,2\n" + b"y" * 300 + b",2\n3,4\n" + unclosed)
    assert values(found[:2]) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}] and {TOO_LONG, NO_ROW} <= set(found)


def test_a_broken_first_line_does_not_end_the_file(read: Reading) -> None:
    assert read(b'{"model": "gpt\n{"a": 1}\n') == [b'{"model": "gpt', b'{"a": 1}']
    assert read(b"[1, 2\n") == [NO_JSON]


def test_items_of_a_list_that_are_no_objects_are_told(read: Reading) -> None:
    assert read(b'[1, {"a": 1}, []]') == [NO_JSON, b'{"a": 1}', NO_JSON]


def test_nothing_is_nothing(read: Reading) -> None:
    assert read(b"") == [] and read(b" \n\0\n") == [] and read(gzip.compress(b"")) == []


def test_what_was_packed_before_it_broke_off_counts(read: Reading) -> None:
    many = b'{"a": 1}\n' * 100_000
    packed = gzip.compress(many)
    found = read(packed[: len(packed) // 2])
    assert len(found) > 1_000 and found[0] == b'{"a": 1}'
    assert values(found[-1:]) == ["the packed data ends too early"]


def test_damage_is_told(read: Reading) -> None:
    packed = bytearray(gzip.compress(LINES))
    packed[15] ^= 0xFF
    assert any(isinstance(one, Skipped) and "damaged" in one.why for one in read(bytes(packed)))


def test_zstd_is_told_where_it_cannot_be_read(read: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    assert values(read(b"\x28\xb5\x2f\xfd1234")) == ["packed with zstd, which needs Python 3.14: unpack it first"]


def test_a_line_that_is_too_long_is_skipped_in_bounded_memory(read: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1 << 20)
    long = b'{"x": "' + b"y" * (50 << 20) + b'"}'
    bomb = gzip.compress(b'{"a": 1}\n' + long + b'\n{"b": 2}\n')
    del long
    tracemalloc.start()
    found = read(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [b'{"a": 1}', TOO_LONG, b'{"b": 2}'] and peak < 16 << 20


@pytest.mark.parametrize("first", [b'{"x": "', b'["', b"x,"])
def test_a_first_line_that_is_too_long_is_skipped_too(
    read: Reading, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1 << 20)
    packer = zlib.compressobj(wbits=31)
    packed = (
        packer.compress(first)
        + packer.compress(b"y" * (30 << 20))
        + packer.compress(b'"}\n{"b": 2}\n')
        + packer.flush()
    )
    tracemalloc.start()
    found = read(packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert TOO_LONG in found and peak < 16 << 20


def test_a_long_document_is_read_item_by_item(read: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1 << 14)
    items = [{"startedDateTime": str(i), "request": {"deep": [{"x": "}"}]}} for i in range(500)]
    for document in (json.dumps({"log": {"pages": [], "entries": items}}, indent=2), json.dumps(items, indent=4)):
        assert values(read(document.encode())) == items
    lines = "[\n" + ",\n".join(map(json.dumps, items)) + "\n]"
    assert values(read(lines.encode())) == items
    last = '{\n "log": [\n  {\n   "a": 1\n  },\n' + "  1,\n" * 9_000 + '  {\n   "x": "' + "y" * 20_000
    assert values(read(last.encode()))[0] == A


def test_an_entry_with_a_value_in_every_second_byte_is_not_decoded(read: Reading) -> None:
    crowded = b'{"a":[' + b"1," * (1 << 20) + b"1]}"
    assert read(b'{"a": 1}\n' + crowded + b"\n") == [b'{"a": 1}', TOO_MANY]
    assert read(crowded + b"\n") == [TOO_MANY]
    assert read(b"[" + b"1," * (1 << 20) + b"1]") == [TOO_MANY]


def test_deep_json_is_told(read: Reading) -> None:
    assert [one.why for one in read(b"[" * 100_000) if isinstance(one, Skipped)]


def test_folders_are_searched(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/x.json.gz", "a/y.txt", "c.HAR"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    named = tmp_path / "a" / "y.txt"
    assert list(files_of([tmp_path, named])) == [
        tmp_path / "a" / "x.json.gz",
        tmp_path / "b.jsonl",
        tmp_path / "c.HAR",
        named,
    ]


def test_a_file_that_cannot_be_opened_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        list(Source(tmp_path / "absent").entries())
