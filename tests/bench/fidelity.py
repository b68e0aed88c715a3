"""What survives a cut, on recorded conversations: runs a fidelity script against a proxy of its own, all its measures.

    python -m tests.bench.fidelity FOLDER [--limit N]

FOLDER holds `bench/fit_bench.py` and its `data/`; neither is part of this project.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from tests.bench.arguments import measures

PORT = 19180
# What is measured, and with which ladder: none is the default one.
MEASURES = (("history", "chat"), ("history", ""), ("tools", ""), ("agents", ""))


def started(port: int = PORT, source: Path | None = None) -> subprocess.Popen[bytes]:
    """A proxy without an upstream: only /inspect is used. It runs from `source`, else from the current folder. Raises
    RuntimeError where it does not come up."""
    command = [sys.executable, "-m", "proxy.cli", "serve", "--port", str(port)]
    environment = {**os.environ, "PLIMSOLL_UPSTREAM": "http://127.0.0.1:9"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=source)
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
            return process
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    process.terminate()
    raise RuntimeError("the proxy did not come up")


def tokenizers() -> Path:
    """The folder of tokenizer files that litellm brings along."""
    package = find_spec("litellm")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "litellm_core_utils" / "tokenizers"


def main() -> int:
    """Exit code 2 where the script or its data is missing."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=measures)
    arguments.add_argument("--limit", type=int, help="cases of each measure; all of them without")
    chosen = arguments.parse_args()
    script = chosen.folder / "bench" / "fit_bench.py"
    proxy = started()
    try:
        for what, ladder in MEASURES:
            print(f"{what}, ladder {ladder or 'default'}", flush=True)
            command = [sys.executable, str(script), f"http://127.0.0.1:{PORT}", what]
            command += ["--ladder", ladder] if ladder else []
            command += ["--limit", str(chosen.limit)] if chosen.limit else []
            subprocess.run(command, env={**os.environ, "TIKTOKEN_CACHE_DIR": str(tokenizers())}, check=True)
    finally:
        proxy.terminate()
        proxy.wait(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
