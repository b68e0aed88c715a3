"""What is known of models, as values and as a table."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from proxy.cli.models import NoMemory, describe, table
from proxy.config.rules import load_rules
from proxy.config.windows import Windows, load_windows
from proxy.tokens.families import BUILT_IN

MODELS = ("gpt-4o", "claude-opus-4-5", "nobody-knows-it", "ft:gpt-4o-2024-08-06:my-organisation:a-suffix:9abcdef")


@pytest.fixture(scope="module")
def windows() -> Windows:
    return load_windows(load_rules(None).windows)


def drawn(windows: Windows, width: int, *models: str) -> list[str]:
    out = io.StringIO()
    table([describe(model, windows, BUILT_IN) for model in models], Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_model_that_is_counted_to_the_token_needs_a_margin_of_100(windows: Windows) -> None:
    row = describe("gpt-4o", windows, BUILT_IN)
    assert (row["window"], row["max_output"], row["source"], row["guessed"]) == (128_000, 16_384, "litellm", False)
    assert (row["count"], row["margin"]) == ("exact", {"base": 100, "share": 0})
    assert "tools" in row["can"]


def test_one_that_is_not_needs_more(windows: Windows) -> None:
    row = describe("claude-opus-4-5", windows, BUILT_IN)
    assert row["count"] == "estimated"
    assert row["margin"]["share"] > 0


def test_a_guess_is_called_one(windows: Windows) -> None:
    row = describe("nobody-knows-it", windows, BUILT_IN)
    assert (row["window"], row["guessed"], row["can"]) == (8192, True, None)
    assert "a guess" in drawn(windows, 80, "nobody-knows-it")[1]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_figure_is_cut_off(windows: Windows, width: int) -> None:
    lines = drawn(windows, width, *MODELS)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("128,000", "200,000", "8,192", "16,384", "exact", "estimated", "a guess", "litellm"):
        assert word in text
    assert ("vision" in text) == (width >= 110)


def test_a_column_in_which_nothing_stands_is_left_out(windows: Windows) -> None:
    assert "max output" not in drawn(windows, 120, "nobody-knows-it")[0]
    assert "max output" in drawn(windows, 120, *MODELS)[0]


@pytest.mark.parametrize("width", [60, 80])
def test_a_name_that_leaves_no_room_for_the_figures_has_its_own_line(windows: Windows, width: int) -> None:
    names = (*MODELS[:3], "vendor/模型😀[red]" + "-part" * 5)
    lines = drawn(windows, width, *names)
    assert all(name in lines for name in names)
    assert max(map(cell_len, lines)) <= width
    assert "  window 128,000   max output 16,384   from litellm" in " ".join(lines)


def test_a_bound_on_the_prompt_alone_is_shown(windows: Windows) -> None:
    row = {**describe("gpt-4o", windows, BUILT_IN), "max_input": 272_000}
    out = io.StringIO()
    table([row], Console(file=out, width=100))
    assert "272,000" in out.getvalue()


def test_nothing_is_remembered() -> None:
    memory = NoMemory()
    memory.put(b"key", (1,))
    assert memory.get(b"key") is None


def test_U15_what_the_words_of_the_table_mean_stands_below_it(windows: Windows) -> None:
    text = "\n".join(drawn(windows, 200, *MODELS))
    for said in ("from litellm: ", "from a guess: the model is unknown", "count exact: ", "margin: tokens kept free"):
        assert said in text
    assert "from a guess" not in "\n".join(drawn(windows, 200, "gpt-4o"))
