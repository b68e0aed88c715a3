"""N8: no regular expression of the package or of its rules takes long, whatever the text."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading

from tests.hostile.harness import ROOT
from tests.hostile.patterns import MARK

HANG_S = 30.0  # of processor time for one expression
SILENCE_S = 300.0  # on a machine that is very busy


def test_N8_no_expression_takes_long_on_any_text() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.patterns"], stdout=subprocess.PIPE, cwd=ROOT, encoding="utf-8"
    )
    assert child.stdout is not None
    told: queue.Queue[str] = queue.Queue()
    stream = child.stdout

    def read() -> None:
        for line in stream:
            told.put(line)
        told.put("")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    tried, before, pattern = 0, 0.0, "(imports)"
    try:
        while line := told.get(timeout=SILENCE_S):
            if line.startswith(MARK):
                spent = float(line[1:])
                assert tried == 0 or spent - before < HANG_S, pattern
                tried, before = tried + 1, spent
            else:
                pattern = line
        assert child.wait(60) == 0 and tried > 150
    except queue.Empty:
        raise AssertionError(f"it does not end: {pattern}") from None
    finally:
        child.kill()
        child.wait()
        reader.join(10)
        stream.close()
