"""plimsoll replay: its options, its report in the terminal, and its files."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.main import main
from proxy.cli.replay import columns_of
from proxy.errors import ConfigError
from proxy.model.outcome import Usage
from proxy.replay.plan_worker import Column
from tests.cli.test_main import clean, ended
from tests.replay.recordings import chat, logged

__all__ = ["clean"]  # the fixture


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """The report of a run, as JSON."""
    code, out, err = ended(capsys, "replay", "--json", *argv)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_report_tells_what_would_have_been_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "log.jsonl", chat(200), chat(3), usage=Usage(700, 5))
    code, out, err = ended(capsys, "replay", str(log))
    assert (code, err) == (0, "")
    for said in ("2 requests in 1 files: LiteLLM 2", "over the line", "gpt-4", "search", "prune_history", "entry 1"):
        assert said in out
    assert "error p50" in out and "saved, net" in out


def test_json_has_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, str(logged(tmp_path / "log.jsonl", chat(200), chat(3))))
    total = found["columns"][0]["total"]
    assert (total["planned"], total["over"], total["too_long"], total["answered"]) == (2, 1, 1, 1)
    assert found["input"]["formats"] == {"LiteLLM": 2} and found["columns"][0]["apps"][0]["name"] == "search"
    assert total["money"]["priced"] == 2 and total["money"]["answered_net"] > 0


@pytest.mark.parametrize("option", ["--lines", "--html"])
def test_a_file_that_no_replay_wrote_is_not_overwritten(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = logged(tmp_path / "1.jsonl", chat(3)), logged(tmp_path / "2.jsonl", chat(3))
    before = first.read_bytes()
    code, _, err = ended(capsys, "replay", option, str(first), str(second))
    assert (code, first.read_bytes()) == (2, before) and "it is not overwritten" in err


def test_a_file_may_have_a_name_that_is_not_utf_8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / os.fsdecode(b"log-\xff.jsonl"), chat(200))
    absent = tmp_path / os.fsdecode(b"absent-\xff.jsonl")
    page, lines = tmp_path / "page.html", tmp_path / "lines.jsonl"
    found = told(capsys, "--lines", str(lines), str(log), str(absent))
    assert found["columns"][0]["worst"][0]["file"].endswith("/log-?.jsonl")
    (unreadable,) = found["input"]["unreadable"]
    assert unreadable.endswith("/absent-?.jsonl: No such file or directory")
    assert json.loads(lines.read_bytes())["file"].endswith("/log-?.jsonl")
    assert ended(capsys, "replay", "--html", str(page), str(log))[0] == 0 and "log-?.jsonl" in page.read_text()


def test_settings_are_compared_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(logged(tmp_path / "log.jsonl", chat(200)))
    found = told(capsys, "--ladder", "chat", "--ladder", "agent", "--window", "4000", log)
    assert [column["name"] for column in found["columns"]] == [
        "ladder chat, window 4,000",
        "ladder agent, window 4,000",
    ]
    assert told(capsys, "--model", "gpt-4o", log)["columns"][0]["models"][0]["name"] == "gpt-4o"
    out = ended(capsys, "replay", "--ladder", "chat", "--ladder", "agent", log)[1]
    assert "ladder chat" in out and "ladder agent" in out


def test_columns_with_long_names_leave_room_for_what_they_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    log = str(logged(tmp_path / "log.jsonl", chat(200)))
    settings = ("--ladder", "chat", "--ladder", "agent", "--window", "4000", "--model", "gpt-4-0125-preview")
    lines = ended(capsys, "replay", *settings, log)[1].splitlines()
    assert max(len(line) for line in lines if not line.startswith(log)) <= 80, "but for a name that can be copied"
    for whole in ("would be refused as sent", "prune_history"):
        assert any(line.startswith(whole + " ") for line in lines)


def test_the_page_and_the_lines_are_for_their_owner_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "log.jsonl", chat(200), chat(3))
    html, lines = tmp_path / "report.html", tmp_path / "lines.jsonl"
    assert ended(capsys, "replay", str(log), "--html", str(html), "--lines", str(lines))[2].endswith("report.html\n")
    assert html.read_text().startswith("<!doctype html>") and "t0x0" not in html.read_text()
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(one["entry"], one["at"]) for one in written] == [(1, 1_763_000_000.0), (2, 1_763_000_010.0)]
    assert written[0]["plans"][0]["steps"] and written[1]["plans"][0]["fits"]
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (html, lines)] == [0o600, 0o600]
    assert ended(capsys, "replay", str(log), "--html", str(html), "--lines", str(lines))[0] == 0  # written anew


def test_texts_are_shown_only_where_they_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(logged(tmp_path / "log.jsonl", chat(200)))
    assert "t0x0" not in json.dumps(told(capsys, log)) and "t0x0" in json.dumps(told(capsys, "--content", log))


def test_other_processes_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(logged(tmp_path / "log.jsonl", *[chat(3)] * 70, chat(200)))
    one, two = (told(capsys, "--jobs", jobs, log) for jobs in ("0", "2"))
    assert one["columns"] == two["columns"]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--ladder", "nobodys"], "--ladder: there is no ladder nobodys; there are "),
        (["--window", "0"], "--window"),
        (["--jobs", "-1"], "--jobs"),
        (["--window=1", "--window=2", "--window=3", *(f"--model=m{i}" for i in range(3))], "9 combinations"),
        (["--html", "/nowhere/x.html"], "/nowhere/x.html: No such file"),
    ],
)
def test_mistakes_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: Sequence[str], problem: str
) -> None:
    code, _, err = ended(capsys, "replay", *argv, str(logged(tmp_path / "log.jsonl", chat(3))))
    assert code == 2 and problem in err


def test_a_report_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, lines = logged(tmp_path / "log.jsonl", chat(3)), tmp_path / "lines.jsonl"
    assert ended(capsys, "replay", "--lines", str(lines), "--html", str(tmp_path / "no" / "x.html"), str(log))[0] == 2
    assert lines.read_bytes() == b""


def test_an_empty_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ended(capsys, "replay", str(tmp_path))
    assert code == 2 and "no files" in err


def test_figures_alone_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"step": "prune_history", "tokens_before": 9_000, "tokens_after": 5_000}]
    line = {"v": 1, "time": 1.0, "api": "chat", "path": "/v1/chat/completions", "model": "gpt-4", "window": 8_192}
    figures = {"prompt": 9_000, "prompt_sent": 5_000, "reserve": 3_000, "steps": steps}
    (tmp_path / "meta.jsonl").write_text(json.dumps(line | figures))
    code, out, err = ended(capsys, "replay", str(tmp_path / "meta.jsonl"))
    assert code == 0 and "1 over the line" in out and "by prune_history" in out and "as configured" not in out
    for said in (" ".join(out.split()), err):  # at once, and at the end
        assert said.rstrip().endswith("redacted (other words of as many tokens) and bodies record what a replay needs")
    found = json.loads(ended(capsys, "replay", "--json", str(tmp_path / "meta.jsonl"))[1])["figures_only"]
    assert (found["over"], found["models"][0]["name"], found["steps"][0]["tokens"]) == (1, "gpt-4", 4_000)


def test_a_file_without_requests_is_a_failure_that_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"weather": "rain"}\n\x1b[2J\n')
    code, out, _ = ended(capsys, "replay", str(tmp_path / "a.jsonl"), str(tmp_path / "absent"))
    told = " ".join(out.split())  # lines break where the width of the folder's name wants it
    assert code == 1 and "JSON of no format that is known" in told and "No such file" in told and "\x1b[2J" not in out


def test_hostile_names_move_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path / "log.jsonl", chat(200, model="gpt-4 \x1b[2J[bold]"), app="\x1b]0;x\x07[red]")
    out = ended(capsys, "replay", str(log))[1]
    assert "\x1b" not in out and "\x07" not in out and "[red]" in out


def test_columns_are_every_combination() -> None:
    assert columns_of((), (), ()) == [Column()]
    assert columns_of(["a", "b"], [1], ["m"]) == [Column("a", 1, "m"), Column("b", 1, "m")]
    with pytest.raises(ConfigError):
        columns_of([str(i) for i in range(9)], (), ())


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["replay", "--help"])
    assert exit.value.code == 0 and "repeat it to compare" in capsys.readouterr().out


def recorded(path: Path, *lines: dict[str, Any]) -> Path:
    """Writes lines as a recording of Plimsoll has them, ten seconds apart, each with a body of 80,000 tokens."""
    usual = {"v": 1, "api": "chat", "path": "/v1/chat/completions", "content": "bodies"}
    body = json.loads(chat(200, model="gpt-4o"))
    made = [{**usual, "time": 1_763_000_000.0 + 10 * at, "request": body, **line} for at, line in enumerate(lines)]
    path.write_text("\n".join(map(json.dumps, made)))
    return path


RULES = """
[[caller]]
name = "search"
match = "key:12ab:0123456789abcdef0123456789abcdef"
window = 16000

[[caller]]
name = "support"
match = { headers = ["help-desk"] }
mode = "observe"
window = 16000

[[caller]]
name = "interns"
match = "key:12ab:ffffffffffffffffffffffffffffffff"
models = ["gpt-4o-mini"]

[[caller]]
name = "agents"
match = "key:12ab:eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
window = 16000
on_full = "agent"

[[caller]]
name = "nobody"
match = "key:12ab:dddddddddddddddddddddddddddddddd"

[[caller]]
name = "rest"
match = "*"
window = 64000
pin = { texts = ["t0x0"] }
"""


@pytest.fixture
def ruled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """A report on requests of many callers under `RULES`."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "callers.toml").write_text(RULES)
    log = recorded(
        tmp_path / "r.jsonl",
        {"caller_name": "search", "caller": "01"},
        {"caller_keys": ["key:12ab:0123456789abcdef0123456789abcdef"], "caller": "02"},
        {"caller_name": "help-desk", "caller": "03"},
        {"caller_name": "interns", "caller": "04"},
        {"caller_name": "agents", "caller": "05"},
        {"caller": "06"},
    )
    return told(capsys, "--rules", str(tmp_path / "rules"), str(log))


def test_rules_by_caller_hold_by_the_names_and_hashes_of_the_recording(ruled: Any) -> None:
    column = ruled["columns"][0]
    found = {group["name"]: group for group in column["callers"]}
    assert {name: (one["requests"], one["cut"], one["held"]) for name, one in found.items()} == {
        "search": (2, 2, 0),
        "support": (1, 0, 1),
        "interns": (1, 0, 0),
        "agents": (1, 0, 1),
        "rest": (1, 1, 0),
    }
    sent = {name: one["tokens"]["prompt_sent"] for name, one in found.items()}
    assert sent["search"] <= 2 * 16_000 and 16_000 < sent["rest"] <= 64_000 and found["interns"]["planned"] == 0
    assert column["not_planned"] == {"The caller interns may not use this model or path.": 1}
    assert ruled["input"]["unused_rules"] == ["nobody"]
    for name, one in found.items():
        money = one["money"]
        assert money["saved_net"] == 0 or name in ("search", "rest"), "what is not cut saves nothing"
        assert money["priced"] == one["planned"]


def test_without_rules_callers_have_the_names_of_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = recorded(tmp_path / "r.jsonl", {"caller_name": "search", "caller": "01"}, {"caller": "06"})
    out = ended(capsys, "replay", str(log))[1]
    assert "\ncaller" in out and "\nsearch" in out and "\n06" in out and "\napp " not in out


def test_U26_what_has_no_price_is_named_with_how_to_give_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logged(tmp_path / "log.jsonl", chat(3, model="house-model-7"))
    out = " ".join(ended(capsys, "replay", str(log))[1].split())
    assert "without a price: house-model-7 (1): give them one by [[price]] rows in windows.toml" in out
    (tmp_path / "windows.toml").write_text('[[price]]\nmodel = "house-*"\ninput = 1.0\noutput = 2.0')
    found = told(capsys, "--rules", str(tmp_path), str(log))["columns"][0]
    assert found["without_price"] == [] and found["total"]["money"]["priced"] == 1


def test_M5_a_recording_through_another_provider_has_its_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules").mkdir()
    row = '[[upstream]]\nname = "groq"\nurl = "https://api.groq.com/openai/v1"\nmodels = ["openai/gpt-oss*"]\n'
    (tmp_path / "rules" / "upstreams.toml").write_text(row)
    body = json.loads(chat(3, model="openai/gpt-oss-120b"))
    log = recorded(tmp_path / "r.jsonl", {"upstream": "groq", "request": body})
    there = told(capsys, "--rules", str(tmp_path / "rules"), str(log))
    alone = told(capsys, str(log))
    assert there["columns"][0]["total"]["money"]["priced"] == 1 and there["input"]["unknown_upstreams"] == []
    assert alone["columns"][0]["without_price"] and alone["input"]["unknown_upstreams"] == ["groq"]


def test_a_budget_does_to_the_recorded_requests_what_it_would_have_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules").mkdir()
    budget = '[[budget]]\nname = "daily"\nper = "1d"\ntokens = 150000\ncount = "all"\nwindow = 4000\nsoft = 0.3\n'
    caller = '[[caller]]\nname = "search"\nmatch = { headers = ["search"] }\nbudget = "daily"\n'
    log = recorded(tmp_path / "r.jsonl", *[{"caller_name": "search"}] * 4)

    def column(over: str) -> Any:
        (tmp_path / "rules" / "callers.toml").write_text(f'{budget}over = "{over}"\n{caller}')
        return told(capsys, "--rules", str(tmp_path / "rules"), str(log))["columns"][0]

    fitted, refused, observed = column("fit"), column("refuse"), column("observe")
    assert (fitted["total"]["cut"], fitted["total"]["over_budget"]) == (3, 0) and fitted["budgets"][0]["stages"][0] == 1
    assert (refused["total"]["cut"], refused["total"]["over_budget"]) == (0, 3)
    assert (observed["total"]["cut"], observed["total"]["over_budget"]) == (0, 0)
    assert observed["budgets"][0]["share"] > 1 and fitted["budgets"][0]["share"] < 1
    out = ended(capsys, "replay", "--rules", str(tmp_path / "rules"), "--html", str(tmp_path / "p.html"), str(log))[1]
    assert "daily: search" in out and "<h2>Budgets</h2>" in (tmp_path / "p.html").read_text()
