"""Renders manifests with kustomize's and Helm's own code. Runs as a process of its own: each is a library in Go.

`python renderer.py kustomize|helm` answers each line of JSON with one: {"text": ...} or {"error": ...}.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Request = dict[str, Any]


def kustomize() -> Callable[[Request], str]:
    """Renders the folder `folder`. The package's Python part is not loaded: it needs a newer Python."""
    spec = importlib.util.find_spec("pykustomize")
    folder = Path((spec and spec.origin) or "").parent
    library = ctypes.CDLL(str(folder / "_lib" / "linux-amd64" / "libpykustomize.so"))
    library.pykustomize_last_error.restype = ctypes.c_char_p

    def render(request: Request) -> str:
        found = ctypes.c_void_p()
        failed = library.pykustomize_build(request["folder"].encode(), b"{}", ctypes.byref(found))
        if failed:
            raise ValueError((library.pykustomize_last_error() or b"").decode())
        try:
            return ctypes.string_at(found.value or 0).decode()
        finally:
            library.pykustomize_free(found)

    return render


def helm() -> Callable[[Request], str]:
    """Renders the chart `chart` with `values`, which its schema must accept, or with `lint` returns what lint says."""
    library = importlib.import_module("helm_python")

    def render(request: Request) -> str:
        if "lint" in request:
            return json.dumps(library.lint(request["chart"], request["values"], strict=True))
        with library.Chart.load(request["chart"]) as chart:
            chart.validate_schema(request["values"])
            files = chart.render(request["values"], name="plimsoll", namespace="plimsoll")
        return "\n---\n".join(text for path, text in sorted(files.items()) if not path.endswith("NOTES.txt"))

    return render


def main() -> None:
    """Answers until the input ends."""
    render = {"kustomize": kustomize, "helm": helm}[sys.argv[1]]()
    print(json.dumps({"text": "ready"}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"text": render(json.loads(line))}
        except Exception as error:  # Helm's errors have a class each
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
