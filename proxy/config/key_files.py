"""Settings from files: a folder with one file for each setting, named like it, as Kubernetes mounts a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from proxy.errors import ConfigError

FOLDER = "PLIMSOLL_KEYS"
MAX_BYTES = 65_536  # a longer file is no setting
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def with_key_files(environ: Mapping[str, str], folder: str | None = None) -> Mapping[str, str]:
    """An environment whose variables are overridden by the files of `PLIMSOLL_KEYS`, or of `folder` if that is given.
    Files whose names are no names of variables, in capitals, are ignored.

    Raises `ConfigError` if the folder or a file cannot be read; no error contains a part of a file.
    """
    named = (environ.get(FOLDER, "") if folder is None else folder).strip()
    if not named:
        return environ
    if not Path(named).is_dir():
        raise ConfigError(f"{FOLDER}: no such folder: {named}")
    try:
        paths = sorted(path for path in Path(named).iterdir() if _is_setting(path))
        return {**environ, **{path.name: _text_of(path) for path in paths}}
    except OSError as error:
        raise ConfigError(f"{FOLDER}: {error.filename}: cannot be read: {error.strerror}") from None


def _is_setting(path: Path) -> bool:
    return VARIABLE.fullmatch(path.name) is not None and path.name != FOLDER and path.is_file()


def _text_of(path: Path) -> str:
    """A file's text, decoded as variables are, so that a secret is the same bytes in both."""
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{FOLDER}: {path}: is over {MAX_BYTES} bytes")
    return path.read_bytes().decode("utf-8", "surrogateescape")
