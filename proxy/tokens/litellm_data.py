"""Finds litellm's data, which are read as files: those that this package ships, or those of an installed litellm.

litellm itself is never imported: that costs seconds and 150 MiB.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "litellm_data"  # written when the package is built (deploy/build_hook.py)
PACKAGE = "litellm"
NOTICE = "NOTICE"  # of a shipped folder: it names the version of litellm that the data are from
FROM = re.compile(r"litellm (\d[\w.]*)")


@dataclass(frozen=True, slots=True)
class Data:
    """A folder with litellm's data, laid out as in its package; `version`: of litellm, empty if unknown."""

    folder: Path
    version: str = ""


def found() -> list[Data]:
    """The folders that are there, the newest first."""
    return sorted([*_shipped(), *_installed()], key=lambda data: _order(data.version), reverse=True)


def path_of(name: str) -> Path | None:
    """The newest file or folder of that name in litellm's package; None if there is none."""
    return next((path for data in found() if (path := data.folder / name).exists()), None)


def version_of_data() -> str:
    """The version of litellm that the newest data are from; empty if there are none, or if it is unknown."""
    return next((data.version for data in found()), "")


def _shipped() -> list[Data]:
    try:
        said = FROM.search((SHIPPED / NOTICE).read_text("utf-8"))
    except OSError:
        return []
    return [Data(SHIPPED, said[1] if said is not None else "")]


def _installed() -> list[Data]:
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec and spec.submodule_search_locations) or ()
    return [Data(Path(folder), _installed_version()) for folder in folders]


def _installed_version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def _order(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
