"""The README as a newcomer reads it: what it says to type is there, and its figures are those that were measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.cli.main import parser
from proxy.cli.run import Running, summary
from tests.test_documents import README, pages, prose_of, text_of

ROOT = Path(__file__).parents[1]
BENCH = "tests/bench/README.md"
SCREEN = 40  # lines


def blocks(text: str) -> list[str]:
    """The blocks of code without a language."""
    return [block.partition("\n```")[0] for block in text.split("\n```\n")[1::2]]


def typed() -> list[str]:
    """What the README says to type: the lines of its blocks, and what stands in the text as code."""
    lines = [line for block in blocks(text_of(README)) for line in block.splitlines()]
    return lines + re.findall(r"`([^`\n]+)`", prose_of(README))


def test_U31_the_first_screen_says_how_to_install_it_to_run_it_before_claude_code_and_to_see_what_was_cut() -> None:
    screen = "\n".join(text_of(README).splitlines()[:SCREEN])
    installs, runs = blocks(screen)[0].splitlines()
    assert installs.startswith("git clone REPOSITORY plimsoll && cd plimsoll && make setup ")
    assert runs.startswith(".venv/bin/plimsoll run --page -- claude ")
    for seen in ("`make demo`", "the page", "`x-plimsoll-steps`", "`plimsoll inspect request.json`"):
        assert seen in screen


def test_every_command_that_is_to_be_typed_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in typed():
        assert set(re.findall(r"(?:^|&& |\$ )make ([a-z-]+)", line)) <= targets, line
        assert set(re.findall(r"(?:^|\s|/|\()plimsoll ([a-z]+)(?= |$)", line)) <= {*parser().commands, "run"}, line


def test_what_run_says_has_the_form_that_it_has_here(monkeypatch: pytest.MonkeyPatch) -> None:
    said = next(block for block in blocks(text_of(README)) if "tokens saved" in block).splitlines()
    requests = {"total": 212, "cut": 9, "healed": 0, "failed": 0}
    overview = {"requests": requests, "tokens": {"saved": 310_512, "prompt": 24_018_220}}
    monkeypatch.setattr("proxy.cli.admin_client.overview", lambda url: overview)
    one = Running(("anthropic",), "http://127.0.0.1:40417", "http://127.0.0.1:36127/", "https://api.anthropic.com/v1")
    begun = f"{', '.join(one.apis)} through {one.url} to {one.upstream}; page: {one.admin}"
    assert said == [f"plimsoll: {begun}", f"plimsoll: {summary(one)}"]


def test_B16_the_time_that_it_adds_is_what_was_measured_last() -> None:
    """The rows of the newest table of speed: p50 that is added, in milliseconds."""
    section = text_of(BENCH).partition("\n## Speed\n")[2].partition("\n## ")[0]
    table = section[section.rindex("| body, clients at once |") :].partition("\n\n")[0]
    added = dict(re.findall(r"^\| ([\w ]+, \d+) \|.*\| (-?[\d.]+), [\d.]+ ms \|$", table, re.MULTILINE))
    assert "a fifth of a millisecond" in text_of(README) and float(added["1 KB, 1"]) <= 0.2
    assert "one and a half to two milliseconds where sixteen clients ask" in " ".join(text_of(README).split())
    assert all(1.4 <= float(added[case]) <= 2.1 for case in ("1 KB, 16", "40 KB, 16"))


def test_the_time_of_a_cut_is_what_was_measured() -> None:
    section = text_of(BENCH).partition("\n## Planning\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| (7\d),\d+ \| [\d,]+ \| ([\d.]+) \| ([\d.]+) \|$", section, re.MULTILINE)
    assert "To cut a conversation of 75,000 tokens takes some" in text_of(README) and len(rows) == 3
    assert all(75 <= float(cold) <= 85 and 4.5 <= float(warm) <= 25.5 for _, cold, warm in rows)


def test_B16_the_counts_are_those_of_the_table_and_the_wordings_are_as_many_as_there_are_bodies_of() -> None:
    assert "98.4 % of 2,253" in " ".join(text_of(README).split())
    assert "| OpenAI and Azure, text and tools | 2,253 | 98.4 |" in text_of(BENCH)
    assert "the wordings of more than 30 providers and servers are known" in " ".join(text_of(README).split())
    bodies = {path.name for path in (ROOT / "tests" / "refusals").glob("*.json")}
    assert len(bodies - {"others.json"}) > 30


def test_U30_what_is_refused_for_its_length_is_said_where_it_is_said_to_be_fitted() -> None:
    assert "an input of embeddings that is too long is refused" in " ".join(text_of(README).split())
    for ladder in (ROOT / "rules").rglob("*.toml"):
        assert not re.search(r'^name = "truncate_inputs"', ladder.read_text("utf-8"), re.MULTILINE), ladder


@pytest.mark.parametrize("document", [README, "rules/README.md", "proxy/README.md", "deploy/README.md", *pages()])
def test_U31_no_line_of_text_is_too_long_to_be_read_in_a_terminal(document: str) -> None:
    lines = prose_of(document).splitlines()
    assert [line for line in lines if len(line) > 160 and not line.lstrip().startswith("|")] == []
