"""Recordings are read back whole, also while they are written and after a crash; the folder does not grow for ever."""

from __future__ import annotations

import gzip
import os
import resource
import signal
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from proxy.observe.recording.recording_files import (
    CHECK_BYTES,
    MAX_FILE_S,
    RecordingFiles,
    is_open_to_others,
    lines,
    problem_of,
)

ROOT = Path(__file__).parents[2]
BIG = 1 << 30


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def read(folder: Path) -> list[bytes]:
    return [line for path in files_of(folder) for line in lines(path)]


def noise(size: int) -> bytes:
    """A line of this many characters that hardly get smaller."""
    return os.urandom(size // 2).hex().encode() + b"\n"


def test_what_is_appended_is_read_at_once(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path / "new" / "folder", BIG)
    files.append(b"1\n2\n")
    files.append(b"3\n")
    assert read(tmp_path / "new" / "folder") == [b"1", b"2", b"3"]
    (path,) = files_of(tmp_path / "new" / "folder")
    assert gzip.decompress(path.read_bytes()) == b"1\n2\n3\n"
    files.close()


def test_lines_are_read_as_zcat_reads_them(tmp_path: Path) -> None:
    expected = [b'{"a":"b","c"}', b"d" * 5000, b"e", b"f", b"g" * 900]
    files = RecordingFiles(tmp_path, BIG)
    files.append(b"".join(line + b"\n" for line in expected[:3]))
    files.append(b"f\n" + b"g" * 900 + b"\n")
    files.close()
    (path,) = files_of(tmp_path)
    assert read(tmp_path) == expected == gzip.decompress(path.read_bytes()).splitlines()
    assert path.stat().st_size < 400


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path / "kept", BIG)
    files.append(b"1\n")
    files.close()
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in files_of(tmp_path / "kept")] == [0o600]


@pytest.mark.parametrize("missing", [1, 4, 9, 20])
def test_a_member_that_a_crash_cut_off_loses_no_line_before_it(tmp_path: Path, missing: int) -> None:
    files = RecordingFiles(tmp_path, BIG)
    files.append(b"first\n")
    (path,) = files_of(tmp_path)
    whole = path.stat().st_size
    files.append(noise(1000) + b"last\n")
    files.close()
    os.truncate(path, path.stat().st_size - missing)
    assert next(iter(lines(path))) == b"first"
    os.truncate(path, whole + 3)
    assert list(lines(path)) == [b"first"]


def test_a_line_longer_than_what_is_read_at_a_time_is_one_line(tmp_path: Path) -> None:
    long, flat = noise(3_000_000), b"x" * 3_000_000 + b"\n"
    files = RecordingFiles(tmp_path, BIG)
    files.append(b"1\n" + long + flat + b"2\n")
    files.close()
    assert read(tmp_path) == [b"1", long[:-1], flat[:-1], b"2"]


def test_what_is_no_gzip_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"text\n")
    assert list(lines(path)) == []
    path.write_bytes(zlib.compress(b"1\n", 1, 31) + b"text\n")
    assert list(lines(path)) == [b"1"]


def test_a_file_ends_at_its_size_and_the_oldest_go(tmp_path: Path) -> None:
    """The bound is of all files together, up to one batch."""
    times = iter(range(1_700_000_000, 1_800_000_000))
    files = RecordingFiles(tmp_path, 100_000, lambda: next(times))
    for number in range(100):
        files.append(b"%d " % number + noise(10_000))
    files.close()
    sizes = [path.stat().st_size for path in files_of(tmp_path)]
    assert len(sizes) > 2 and 50_000 < sum(sizes) < 110_000
    kept = [int(line.split()[0]) for line in read(tmp_path)]
    assert kept == list(range(kept[0], 100))


def test_a_file_ends_at_its_age(tmp_path: Path) -> None:
    now = [1_700_000_000.0]
    files = RecordingFiles(tmp_path, BIG, lambda: now[0])
    files.append(b"1\n")
    now[0] += MAX_FILE_S - 1
    files.append(b"2\n")
    now[0] += 2
    files.append(b"3\n")
    files.close()
    assert [list(lines(path)) for path in files_of(tmp_path)] == [[b"1", b"2"], [b"3"]]


def test_other_processes_count_and_their_oldest_files_go_too(tmp_path: Path) -> None:
    other = RecordingFiles(tmp_path, 1 << 40, lambda: 1_700_000_000.0)
    other.append(noise(CHECK_BYTES * 4))
    files = RecordingFiles(tmp_path, CHECK_BYTES, lambda: 1_700_000_100.0)
    files.append(b"1\n")
    assert read(tmp_path) == [b"1"]
    other.append(b"2\n")  # its file is gone: it begins another one
    assert sorted(read(tmp_path)) == [b"1", b"2"]
    files.close()
    other.close()


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(noise(100_000))
    files = RecordingFiles(tmp_path, 1000)
    for _ in range(5):
        files.append(noise(1000))
    files.close()
    assert (tmp_path / "notes.txt").exists()


def test_a_file_that_cannot_be_removed_stops_no_recording(tmp_path: Path) -> None:
    times = iter(range(1_700_000_000, 1_800_000_000))
    (tmp_path / "plimsoll-0.jsonl.gz").mkdir()  # the oldest by its name
    files = RecordingFiles(tmp_path, 10_000, lambda: next(times))
    for _ in range(20):
        files.append(noise(2_000))
    files.close()
    kept = [path for path in files_of(tmp_path) if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in kept) < 12_000


def test_a_folder_that_was_removed_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    files = RecordingFiles(folder, BIG)
    files.append(b"1\n")
    for path in files_of(folder):
        path.unlink()
    folder.rmdir()
    files.append(b"2\n")
    assert read(folder) == [b"2"]
    files.close()


def test_no_name_is_used_twice(tmp_path: Path) -> None:
    for text in (b"1\n", b"2\n"):
        files = RecordingFiles(tmp_path, BIG, lambda: 1_700_000_000.0)
        files.append(text)
        files.close()
    assert sorted(read(tmp_path)) == [b"1", b"2"]


@pytest.mark.parametrize("folder", ["/proc/plimsoll", "/dev/null/plimsoll"])
def test_a_folder_that_cannot_be_is_an_error_each_time(folder: str) -> None:
    files = RecordingFiles(Path(folder), BIG)
    for _ in range(2):
        with pytest.raises(OSError):
            files.append(b"1\n")
    files.close()


def test_whether_a_folder_can_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    assert not problem_of(tmp_path) and not problem_of(tmp_path / "new" / "folder") and not problem_of(Path("relative"))
    assert problem_of(tmp_path / "file") == "is a file, must be a folder"
    assert problem_of(tmp_path / "file" / "folder") == "would be below a file, must be a folder"
    assert problem_of(tmp_path / "dangling") == "is a link to nothing"
    assert problem_of(Path("/proc/plimsoll")).startswith("cannot be written: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o700, False), (0o770, False), (0o755, True), (0o777, True), (0o701, False)]
)
def test_whether_others_may_read_a_folder_is_known(tmp_path: Path, mode: int, is_open: bool) -> None:
    tmp_path.chmod(mode)
    assert is_open_to_others(tmp_path) is is_open
    assert not is_open_to_others(tmp_path / "new")


FULL = """
import resource, sys
from pathlib import Path
from proxy.observe.recording.recording_files import RecordingFiles
files = RecordingFiles(Path(sys.argv[1]), 1 << 30)
files.append(b"before\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
import os
try:
    files.append(os.urandom(5000).hex().encode() + b"\\n")
    sys.exit("no error")
except OSError:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
files.append(b"after\\n")
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE") or not hasattr(signal, "SIGXFSZ"), reason="no such limit")
def test_a_batch_that_did_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    """A part of it is written before the disk is full; what follows is readable."""
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, check=True, timeout=60)
    assert read(tmp_path) == [b"before", b"after"]
