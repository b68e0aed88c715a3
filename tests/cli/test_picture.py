"""The picture of a plan: what stands in it, at every width, and that nothing is cut off."""

from __future__ import annotations

import io
import itertools
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from proxy.cli.picture import MAX_ROWS, PARTS, View, bar, picture, runs, show, terminal, view

LINE, WIDTHS = "┃", (60, 80, 100, 200)
WIDE = View(100)


def detail(index: int, state: str = "kept", why: str = "fits", role: str = "user", sent: int = 10) -> dict[str, Any]:
    tokens = 0 if state == "dropped" else sent
    return {"index": index, "role": role, "state": state, "why": why, "tokens": 10, "tokens_sent": tokens}


def told(**changes: Any) -> dict[str, Any]:
    """The plan of a long agent's conversation, as /inspect tells it."""
    before = {"system": 500, "tools": 400, "history": 4_000, "tool_results": 6_000, "reply": 3_000, "margin": 100}
    sent = {"system": 500, "tools": 400, "history": 1_000, "tool_results": 900, "reply": 1_200, "margin": 100}
    messages = [
        detail(0, why="pinned", role="system"),
        *(detail(i, "dropped", "older, and no room") for i in range(1, 9)),
        detail(9, "shortened", "over its cap", "tool", 4),
        detail(10, why="newest"),
    ]
    return {
        "model": "gpt-4",
        "model_sent": "gpt-4",
        "window": 8192,
        "window_source": "litellm",
        "window_guessed": False,
        "window_sent": 8192,
        "tokens": {"quality": "exact", "reserve": 3000, "max_tokens_sent": 1200},
        "fits": True,
        "possible": True,
        "excess": 0,
        "steps": [
            {"step": "trim_tool_results", "tokens_before": 10_900, "tokens_after": 5_800},
            {
                "step": "clamp_output",
                "tokens_before": 5_800,
                "tokens_after": 5_800,
                "max_tokens_before": 3000,
                "max_tokens_after": 1200,
            },
            {"step": "prune_history", "tokens_before": 5_800, "tokens_after": 2_800},
        ],
        "messages": {"in": 11, "sent": 3, "detail": messages, "overhead": {"tokens": 400, "tokens_sent": 400}},
        "parts": {"before": before, "sent": sent},
        **changes,
    }


def drawn(plan: dict[str, Any], width: int = 100, **view: Any) -> list[str]:
    """The lines of a picture as a terminal of this width has them."""
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True, legacy_windows=False)
    console.print(picture(plan, View(width, **view)))
    return [line.rstrip() for line in console.export_text().splitlines()]


def rows(lines: list[str], header: str) -> list[str]:
    """The lines of a table below its header, up to an empty line."""
    start = next(i for i, line in enumerate(lines) if line.startswith(header)) + 1
    return list(itertools.takewhile(bool, lines[start:]))


def figures(line: str) -> list[int]:
    """The numbers of a line, without those of its texts."""
    return [int(word.replace(",", "")) for word in re.findall(r"(?<!\S)[+-]?[\d,]+(?!\S)", line)]


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_in_it_and_nothing_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(told(), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("system", "tools", "history", "tool results", "reply", "margin", "before", "sent", "14,000", "4,100"):
        assert word in text
    for step in ("trim_tool_results", "clamp_output", "prune_history"):
        assert step in text
    assert [figures(line) for line in rows(lines, "step ")] == [
        [10_900, 5_800, -5_100],
        [3_000, 1_200, -1_800],
        [5_800, 2_800, -3_000],
    ]
    for state in ("kept", "dropped", "shortened", "#1…#8", "8 messages", "3 of 11"):
        assert state in text
    assert "…" not in text.replace("#1…#8", ""), "no word is cut off"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_line_stands_at_the_same_place_before_and_after(width: int) -> None:
    before, sent = (line for line in drawn(told(), width) if line.startswith(("before ", "sent ")))
    assert before.index(LINE) == sent.index(LINE)
    assert before.endswith(" 14,000 171%") and sent.endswith("  4,100  50%")
    ends = before.rindex("·")
    assert ends > before.index(LINE), "what is over the line stands behind it"
    assert sent.rindex("·") < sent.index(LINE)


def test_each_part_has_a_sign_of_its_own_that_is_told_without_colours() -> None:
    assert len({part.sign for part in PARTS}) == len(PARTS)
    lines = drawn(told())
    for part in PARTS:
        assert any(line.startswith(f"{part.sign} {part.name} ") for line in lines)
    before = next(line for line in lines if line.startswith("before "))
    assert [sign for sign in dict.fromkeys(before[7:]) if sign not in f" {LINE}0123456789,%"] == [
        part.sign for part in PARTS
    ]


def test_a_bar_has_as_many_columns_as_it_is_given() -> None:
    for parts in ({"system": 1, "reply": 8191}, {"history": 100}, {}, {"system": 9_000, "margin": 1}):
        drawn = bar(parts, 8192, 40, 1, WIDE)
        assert len(drawn.plain) == 41
        assert drawn.plain.count(LINE) == 1
    assert bar({"system": 4096}, 8192, 40, 1, WIDE).plain == "█" * 20 + " " * 20 + LINE
    assert bar({"system": 8192}, 8192, 40, 1, WIDE).plain == "█" * 40 + LINE
    assert bar({"system": 12_288}, 8192, 40, 2, WIDE).plain == "█" * 20 + LINE + "█" * 10 + " " * 10


def test_a_part_of_one_token_can_be_seen() -> None:
    assert (
        bar({"system": 1, "history": 8000, "margin": 1}, 8192, 40, 1, WIDE).plain == "█" + "▒" * 37 + "·" + " " + LINE
    )


def test_what_is_many_times_too_long_is_cut_off_at_two_windows() -> None:
    parts = {"history": 1_000_000, "reply": 3_000}
    lines = drawn(told(parts={"before": parts, "sent": parts}), 80)
    before = next(line for line in lines if line.startswith("before "))
    assert before.endswith("» 1,003,000 12244%")
    assert before.index(LINE) == 7 + 28  # half of the bar
    assert max(map(len, lines)) <= 80


def test_a_request_that_fits_has_one_bar_and_no_steps() -> None:
    parts = {"history": 900, "reply": 3000, "margin": 100}
    tokens = {"quality": "exact", "reserve": 3000, "max_tokens_sent": None}
    messages = {**told()["messages"], "in": 1, "sent": 1, "detail": [detail(0, why="newest")]}
    fine = told(steps=[], parts={"before": parts, "sent": parts}, tokens=tokens, messages=messages)
    lines = drawn(fine)
    assert not any(line.startswith("sent ") for line in lines)
    assert not any("max_tokens" in line for line in lines)
    assert "fits: forwarded byte for byte, 7,192 tokens left for the reply (the request sets no limit)" in lines


def test_what_stays_free_is_said() -> None:
    assert "fits: 4,092 tokens free" in drawn(told())


def test_what_does_not_fit_is_said_in_figures() -> None:
    assert "does not fit: 1,234 tokens too many after all cuts" in drawn(told(fits=False, possible=False, excess=1234))


def test_what_goes_out_without_its_margin_is_said_in_figures() -> None:
    assert "fits only with 60 tokens less for the margin or the reply" in drawn(told(fits=False, excess=60))


def test_another_model_and_a_guess_are_named() -> None:
    lines = drawn(told(model_sent="gpt-4o", window_sent=128_000))
    assert lines[0] == "gpt-4 → gpt-4o   window 8,192 (from litellm)   count exact"
    sent = next(line for line in lines if line.startswith("sent "))
    assert sent.endswith("  3%"), "its own window is the measure"
    assert "a guess: unknown model" in drawn(told(window_guessed=True))[0]


def test_messages_that_fared_alike_are_one_row_and_shortened_ones_stand_alone() -> None:
    rows = [detail(0), detail(1), detail(2, why="pinned"), detail(3, "shortened"), detail(4, "shortened"), detail(5)]
    assert [len(run) for run in runs(rows)] == [2, 1, 1, 1, 1]


def test_of_too_many_rows_the_middle_is_left_out() -> None:
    rows = [detail(i, "shortened", f"reason {i}") for i in range(100)]
    many = told(messages={**told()["messages"], "in": 100, "sent": 100, "detail": rows})
    lines = drawn(many, rest="--all shows them")
    shown = [line for line in lines if "reason" in line]
    assert len(shown) == MAX_ROWS
    assert "reason 0" in shown[0] and "reason 99" in shown[-1]
    left_out = next(line for line in lines if line.startswith("… "))
    assert left_out.split() == ["…", "76", "messages", "760", "760", "--all", "shows", "them"]
    assert sum("reason" in line for line in drawn(many, all=True)) == 100


def test_it_is_printed_as_wide_as_the_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    show(told(), Console(file=out, width=80))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    show(told())
    assert "prune_history" in capsys.readouterr().out


def test_the_columns_add_up() -> None:
    added = {**detail(9, "added", "excerpts of what was left out"), "index": None, "tokens": 0, "tokens_sent": 7}
    quoted = {**detail(3, "recalled", "relevance 0.25"), "tokens_sent": 0}
    again = {**detail(4, "recalled", "relevance 0.40"), "tokens_sent": 0}
    messages = [detail(0, why="pinned"), detail(1, "dropped", "old"), quoted, again, added, detail(5, why="newest")]
    lines = drawn(told(messages={**told()["messages"], "detail": messages}), 60)
    shown = rows(lines, "message ")
    assert [figures(line) for line in shown if figures(line)] == [
        [10, 10],
        [10, 0],
        [2, 20, 0],  # messages in the row
        [0, 7],
        [10, 10],
        [400, 400],
        [450, 427, 2, 11, 1],  # the last three: messages sent, in, and added
    ]
    assert "recalled: relevance 0.25 to" in shown[2]
    assert any(line.startswith("+ ") and "added: excerpts of what" in line for line in shown)
    assert next(line for line in lines if "total" in line).split() == ["total", "14,000", "4,100"]


def test_an_excerpt_shows_which_lines_it_leaves_out() -> None:
    gaps = [(4, 80), (82, 82), (90, 95), (1000, 1200), (1300, 1400)]
    row = {**detail(2, "shortened", "over its cap", "tool"), "lines": 1500, "left_out": gaps}
    plan = told(messages={**told()["messages"], "detail": [row]})
    (line,) = (line for line in drawn(plan, 160) if "lines left out or cut" in line)
    shown = "386 of 1,500 lines left out or cut: 4–80, 1,000–1,200, 1,300–1,400 and 2 more ranges"
    assert line.endswith(f" shortened: over its cap; {shown}")
    (line,) = (line for line in drawn(plan, 160, all=True) if "lines left out or cut" in line)
    assert line.endswith(" left out or cut: 4–80, 82, 90–95, 1,000–1,200, 1,300–1,400")


@pytest.mark.parametrize("width", WIDTHS)
def test_without_unicode_everything_is_drawn_in_ascii(width: int) -> None:
    lines = drawn(told(model_sent="größer", steps=[*told()["steps"], switched("größer")]), width, ascii=True)
    text = "\n".join(lines)
    assert text.isascii() and "gpt-4 -> gr??er" in text and "#1...#8" in text
    assert len({part.ascii for part in PARTS}) == len(PARTS)
    bars = [line for line in lines if line.startswith(("before ", "sent "))]
    assert len({line.index("|") for line in bars}) == 1
    assert all(len(line) <= width for line in lines)


def switched(model: str) -> dict[str, Any]:
    """The note of a switch to this model."""
    tokens = {"tokens_before": 2_800, "tokens_after": 2_800}
    return {"step": "switch_model", **tokens, "model_before": "gpt-4", "model_after": model}


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_characters_break_no_column(width: int) -> None:
    wide = detail(0, role="機長😀" * 6)
    messages = {**told()["messages"], "detail": [wide, detail(1, why="newest")]}
    plan = told(model_sent="模型😀" * 12, steps=[switched("模型😀" * 12)], messages=messages)
    lines = drawn(plan, width)
    assert max(map(cell_len, lines)) <= width
    assert sum(line.count("模") for line in lines) == 24, "in the head and in the step"
    ends = {cell_len(line[: line.index(": ")]) for line in lines if ": pinned" in line or ": newest" in line}
    assert len(ends) <= 2


def test_text_of_a_client_is_no_markup_and_moves_no_cursor() -> None:
    odd = detail(0, role="[/red]\x1b[2J")
    messages = {**told()["messages"], "detail": [odd]}
    text = "\n".join(drawn(told(model="[bold]m\x1b[2J", notices=["[/x]\r"], messages=messages)))
    assert "[bold]m?[2J" in text and "[/red]?[2J" in text and "note: [/x]?" in text and "\x1b" not in text


def test_a_reply_without_a_limit_takes_what_is_left() -> None:
    parts = {"history": 7_000, "reply": 3_000, "margin": 100}
    tokens = {"quality": "exact", "reserve": 3000, "max_tokens_sent": None}
    lines = drawn(told(steps=[], parts={"before": parts, "sent": parts}, tokens=tokens))
    assert next(line for line in lines if line.startswith("before ")).endswith("8,192 100%")
    assert "fits: forwarded byte for byte, 1,092 tokens left for the reply (the request sets no limit)" in lines


def test_a_limit_that_was_added_has_no_change() -> None:
    step = {**switched("m"), "max_tokens_before": None, "max_tokens_after": 20}
    shown = rows(drawn(told(steps=[step])), "step ")
    assert [line.split() for line in shown] == [["switch_model", "max_tokens", "none", "20"], ["model", "m"]]


@pytest.mark.parametrize(
    ("encoding", "term", "is_ascii"), [("utf-8", "xterm", False), ("latin-1", "xterm", True), ("utf-8", "dumb", True)]
)
def test_the_terminal_decides_on_ascii(
    monkeypatch: pytest.MonkeyPatch, encoding: str, term: str, is_ascii: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert view(Console(file=out, width=77, height=9, force_terminal=True)) == View(77, is_ascii)


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_terminal_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("COLUMNS", "63")
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, whatever runs the tests
    assert terminal().width == 63
