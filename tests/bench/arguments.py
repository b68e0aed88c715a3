"""Arguments of the benches, as types of argparse: what is missing is named before anything starts."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path


def existing(text: str) -> Path:
    """A file or folder."""
    if not Path(text).exists():
        raise ArgumentTypeError(f"there is no {text}")
    return Path(text)


def checkout(text: str) -> Path:
    """The folder of a checkout of this project, of any layout that it had: the command was a module first."""
    if not any((Path(text) / "proxy" / name).exists() for name in ("cli", "cli.py")):
        raise ArgumentTypeError(f"{text} is no checkout: there is no proxy/cli in it")
    return Path(text).absolute()


def measures(text: str) -> Path:
    """A folder with the script that measures recorded conversations, and with these."""
    if not (Path(text) / "bench" / "fit_bench.py").is_file() or not (Path(text) / "data").is_dir():
        raise ArgumentTypeError(f"there is no bench/fit_bench.py with data/ in {text}")
    return Path(text)
