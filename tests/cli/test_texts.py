"""What the help says is what there is."""

from __future__ import annotations

import pytest

from proxy.simulator.embedding_refusals import EMBEDDERS
from proxy.simulator.refusals import PROVIDERS
from proxy.simulator.replies import LOOP, PARALLEL, TOOL_MODEL
from proxy.simulator.settings import OVERRIDES
from tests.cli.test_main import clean, ended

__all__ = ["clean"]  # the fixture


def test_U15_the_help_of_simulate_names_all_that_it_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ended(capsys, "simulate", "--help")[1].split()
    assert {*PROVIDERS, *EMBEDDERS, TOOL_MODEL, f"{TOOL_MODEL}-{PARALLEL}", LOOP} <= {*words}
    assert {word for word in words if word.startswith("x-sim-")} == {name.decode() for name in OVERRIDES}
