"""Vocabularies come from an installed wheel, offline, and only if they are the published ones."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.tokens.ranks import RANK_FILES, SOURCES, EncodingUnavailable, Source, folder_of, parse, source_of, verified

OFFLINE = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a connection was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import sys
from proxy.tokens.encodings import encoding
assert encoding("o200k_base").count("hello world") == 2
assert "litellm" not in sys.modules, "the package was imported"
"""


def test_an_encoding_loads_without_a_connection_and_without_importing_the_package_that_ships_it() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ranks_are_the_numbers_of_the_lines() -> None:
    assert parse(b"YQ== 0\nYmM= 1\n") == {b"a": 0, b"bc": 1}


@pytest.mark.parametrize("name", SOURCES)
def test_the_shipped_files_are_the_published_ones_and_number_their_lines(name: str) -> None:
    words = verified(folder_of(RANK_FILES), SOURCES[name]).split()
    assert [int(word) for word in words[1::2]] == list(range(len(words) // 2))


def test_a_file_with_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ranks").write_bytes(b"YQ== 0\n")
    good = Source("ranks", hashlib.sha256(b"YQ== 0\n").hexdigest(), "")
    assert verified(tmp_path, good) == b"YQ== 0\n"
    with pytest.raises(EncodingUnavailable, match="not the published"):
        verified(tmp_path, Source("ranks", "0" * 64, ""))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EncodingUnavailable, match="absent: No such file"):
        verified(tmp_path, Source("absent", "", ""))


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(EncodingUnavailable, match="no/such/folder was not found"):
        folder_of("no/such/folder")


def test_an_unknown_encoding_has_no_source() -> None:
    with pytest.raises(EncodingUnavailable, match="p50k"):
        source_of("p50k")
