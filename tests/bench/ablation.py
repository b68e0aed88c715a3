"""What each constant of the relevance ranking is worth: the fidelity measures with that constant set to another value.

    python -m tests.bench.ablation FOLDER MEASURE[:LADDER] MODULE.NAME=VALUE [...] [--limit N] [--json FILE]

FOLDER is that of `tests.bench.fidelity`. MEASURE is `history`, `tools` or `agents`. MODULE is the name of a file of
`proxy/fit/`. Changes joined by `,,` are made together. Each variant runs from a copy of
the source in which the constant has the other value; the first row is the unchanged source.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.arguments import measures
from tests.bench.fidelity import started, tokenizers

ROOT = Path(__file__).parents[2]
FOLDER = "proxy/fit"
PORT = 19380
TOGETHER = ",,"
FIGURES = ("recall", "natural", "prefix", "priced", "support", "over")  # of a row, where it has them


def changed(root: Path, change: str) -> None:
    """Gives one constant of a copy of the source another value. Raises ValueError where there is no such constant."""
    place, _, value = change.partition("=")
    module, _, name = place.rpartition(".")
    assigned = re.compile(rf"^(?:\w+, )*{re.escape(name)}(?:, \w+)*(?:: [^=\n]+)? = .*\n", re.MULTILINE)
    files = [file for file in (root / FOLDER).rglob(f"{module}.py")]
    if [len(assigned.findall(file.read_text("utf-8"))) for file in files] != [1]:
        raise ValueError(f"{place}: no constant of that name is assigned once, on one line")
    source = files[0].read_text("utf-8")
    files[0].write_text(assigned.sub(lambda found: f"{found[0]}{name} = {value}\n", source), "utf-8")


def rows_of(root: Path, script: Path, measure: str, limit: int | None) -> list[dict[str, Any]]:
    """The rows that the fidelity script prints for a proxy that runs from this folder."""
    what, _, ladder = measure.partition(":")
    out = root / "rows.json"
    command = [sys.executable, str(script), f"http://127.0.0.1:{PORT}", what, "--json", str(out)]
    command += ["--ladder", ladder] if ladder else []
    command += ["--limit", str(limit)] if limit else []
    proxy = started(PORT, root)
    try:
        environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tokenizers())}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    finally:
        proxy.terminate()
        proxy.wait(10)
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


def variants(script: Path, measure: str, changes: Sequence[str], limit: int | None) -> Iterator[tuple[str, Any]]:
    """Each variant, the unchanged source first, and its rows."""
    for change in ("", *changes):
        with tempfile.TemporaryDirectory(prefix="plimsoll-ablation-") as folder:
            for part in ("proxy", "rules"):
                shutil.copytree(ROOT / part, Path(folder) / part, ignore=shutil.ignore_patterns("__pycache__"))
            for one in filter(None, change.split(TOGETHER)):
                changed(Path(folder), one)
            yield change or "unchanged", rows_of(Path(folder), script, measure, limit)


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The figures of each row of a variant."""
    told = []
    for row in rows:
        figures = " ".join(f"{name} {row[name]:g}" for name in FIGURES if row.get(name) is not None)
        told.append(f"{row.get('source', '')} {row['budget']}: {figures}".strip())
    return "  ".join(told)


def main() -> int:
    """Prints a line for each variant."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=measures)
    arguments.add_argument("measure")
    arguments.add_argument("changes", nargs="*", metavar="MODULE.NAME=VALUE")
    arguments.add_argument("--limit", type=int, help="cases of each measure; all of them without")
    arguments.add_argument("--json", type=Path)
    chosen = arguments.parse_args()
    script = (chosen.folder / "bench" / "fit_bench.py").resolve()
    told: dict[str, Any] = {}
    for change, rows in variants(script, chosen.measure, chosen.changes, chosen.limit):
        told[change] = rows
        print(f"{change}\n    {shown(rows)}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
