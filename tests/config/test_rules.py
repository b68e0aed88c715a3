from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from proxy.config import rules
from proxy.config.ladders import parameter
from proxy.config.rules import Rules, built_in, check_rules, load_rules
from proxy.errors import ClientError, ConfigError
from proxy.fit.lore import Entry
from proxy.fit.relevance.results.read_on import ArgumentNames
from proxy.wire import refusals

TOO_LONG = b'{"error": {"message": "the cargo weighs more than 4096 stones", "code": "heavy"}}'


def written(folder: Path, **files: str) -> Path:
    """A rules folder of files; `ladders__x` is ladders/x.toml, `summary` summary.txt."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + (".txt" if name == "summary" else ".toml"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def test_the_built_in_rules_are_right() -> None:
    assert check_rules(None) == []


def test_the_built_in_ladders_are_there() -> None:
    loaded = load_rules(None)
    assert {"default", "chat", "agent", "lossless", "economy", "rag"} <= set(loaded.ladders)
    assert all(name == ladder.name for name, ladder in loaded.ladders.items())


def test_a_ladder_of_the_users_replaces_the_built_in_one_of_that_name(tmp_path: Path) -> None:
    folder = written(tmp_path, ladder='[[step]]\nname = "clamp_output"', ladders__agent="floor = 7", ladders__mine="")
    loaded = load_rules(folder)
    assert [ladder_step.step for ladder_step in loaded.ladders["default"].steps] == ["clamp_output"]
    assert loaded.ladders["agent"].floor == 7
    assert "mine" in loaded.ladders
    own = load_rules(None).ladders["chat"]
    assert [ladder_step.step for ladder_step in loaded.ladders["chat"].steps] == [
        ladder_step.step for ladder_step in own.steps
    ]


def test_a_request_takes_the_ladder_it_wants_else_its_models_else_the_default(tmp_path: Path) -> None:
    text = '[[use]]\nmodel = "Claude-3*"\nladder = "agent"\n[[use]]\nmodel = "claude-*"\nladder = "chat"'
    loaded = load_rules(written(tmp_path, ladder=text))
    assert loaded.ladder_for("claude-3-opus").name == "agent"
    assert loaded.ladder_for("CLAUDE-2").name == "chat"
    assert loaded.ladder_for("gpt-4o").name == "default"
    assert loaded.ladder_for("gpt-4o", None, "economy").name == "economy"
    assert loaded.ladder_for("claude-2", "lossless").name == "lossless"


def test_a_wanted_ladder_that_there_is_not_is_the_clients_error() -> None:
    with pytest.raises(ClientError) as caught:
        load_rules(None).ladder_for("gpt-4o", "nope")
    assert caught.value.status == 400
    assert "agent, chat, compaction, default" in caught.value.message
    assert "nope" not in caught.value.message


def test_a_default_ladder_that_there_is_not_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"PLIMSOLL_LADDER is 'nope', must be one of agent, "):
        load_rules(None, default="nope")


def test_parameters_given_elsewhere_reach_the_steps() -> None:
    loaded = load_rules(None, defaults={"switch_model": {"to": ("gpt-4o",)}})
    models = [
        ladder_step.models for ladder_step in loaded.ladders["default"].steps if ladder_step.step == "switch_model"
    ]
    assert models == [("gpt-4o",)]


def test_rows_of_windows_come_before_the_built_in_ones(tmp_path: Path) -> None:
    folder = written(tmp_path, windows='[[window]]\nmodel = "gpt-4"\ntokens = 5')
    own, mixed = load_rules(None).windows, load_rules(folder).windows
    assert mixed.windows[0].tokens == 5
    assert mixed.windows[1:] == own.windows
    assert (mixed.fallbacks, mixed.sums) == (own.fallbacks, own.sums)


def test_wordings_of_refusals_come_before_the_built_in_ones(tmp_path: Path) -> None:
    assert refusals.recognise(load_rules(None).refusals, 400, TOO_LONG) is None
    text = "[[refusal]]\nname = 'house'\npatterns = ['weighs more than {limit} stones']"
    loaded = load_rules(written(tmp_path, refusals=text))
    found = refusals.recognise(loaded.refusals, 400, TOO_LONG)
    assert found is not None
    assert (found.rule, found.limit) == ("house", 4096)
    assert loaded.refusals.refusals[0].name == "house"


def test_a_wording_replaces_the_built_in_one_of_its_name(tmp_path: Path) -> None:
    own = load_rules(None).refusals
    name = own.refusals[-1].name
    text = f"never = [418]\nfigures = ['weighs {{limit}}']\n[[refusal]]\nname = '{name}'\npatterns = ['stones']"
    mixed = load_rules(written(tmp_path, refusals=text)).refusals
    assert [row.name for row in mixed.refusals] == [name, *(row.name for row in own.refusals[:-1])]
    assert mixed.never == own.never | {418}
    assert len(mixed.figures) == len(own.figures) + 1


def test_the_summary_prompt_is_the_users_where_there_is_one(tmp_path: Path) -> None:
    assert load_rules(written(tmp_path, summary="Sum up:")).summary == "Sum up:"


def test_every_step_that_shortens_results_has_the_names_of_tools_arguments(tmp_path: Path) -> None:
    loaded = load_rules(written(tmp_path, tools="[arguments]\noffsets = ['ab']"))
    given = {
        each.step: parameter(each, "arguments")
        for ladder in loaded.ladders.values()
        for each in ladder.steps
        if parameter(each, "arguments") is not None
    }
    assert given.keys() == {"trim_tool_results", "prune_history"}
    assert {names.offsets for names in given.values()} == {("ab",)}
    assert all("file_path" in names.paths for names in given.values())


def test_a_step_may_have_names_of_its_own(tmp_path: Path) -> None:
    row = "[[step]]\nname = 'trim_tool_results'\narguments = {pages = ['seite']}"
    [step] = load_rules(written(tmp_path, ladder=row)).ladders["default"].steps
    assert parameter(step, "arguments") == ArgumentNames(pages=("seite",))


def test_without_a_summary_prompt_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "rules"
    shutil.copytree(built_in(), base)
    (base / "summary.txt").unlink(missing_ok=True)
    monkeypatch.setattr(rules, "PACKAGE", tmp_path)
    assert load_rules(None).summary is None


def test_all_problems_of_a_folder_are_told_by_file_and_row(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        ladder='[[step]]\nname = "trim_tool_results"\ncap_tokens = "x"\n[[use]]\nmodel = "a"\nladder = "nope"',
        ladders__mine="floor = 0\n[[use]]\nmodel = 'a'\nladder = 'mine'",
        ladders__default="",
        ladders__torn="[[step",
        callers="callers = [7]",
        windows='[[window]]\nmodel = "m"\ntokens = 0',
        refusals="[[refusal]]\nname = 'a'\npatterns = ['(']",
        window="",
    )
    problems = check_rules(folder)
    assert [problem.removeprefix(f"{folder}/") for problem in problems[:5]] == [
        "window.toml: unknown file; known are callers.toml, clients.toml, compactions.toml, counters.toml, "
        "families.toml, key_checks.toml, ladder.toml, polyfills.toml, refusals.toml, summary.txt, tools.toml, "
        "upstreams.toml, windows.toml and ladders/*.toml",
        "ladders/default.toml: the ladder 'default' is in ladder.toml",
        "ladder.toml, step 1 (trim_tool_results): cap_tokens: expected int, got str",
        f"ladder.toml, use 1: unknown ladder 'nope', known are {', '.join(sorted(_names(folder)))}",
        "ladders/mine.toml: floor: expected int >= 1",
    ]
    assert problems[5].endswith("ladders/mine.toml: use: only ladder.toml may choose a ladder by model")
    assert f"{folder}/ladders/torn.toml: " in problems[6]
    assert problems[7].startswith(f"{folder}/windows.toml, window 1 (m): ")
    assert problems[8].startswith(f"{folder}/refusals.toml, refusal row 1 (a): ")
    assert any(problem.startswith(f"{folder}/callers.toml: callers: 7 must be a name") for problem in problems)
    assert len(problems) == 10
    with pytest.raises(ConfigError) as caught:
        load_rules(folder)
    assert str(caught.value).splitlines() == problems


@pytest.mark.parametrize("table", ["window", "gap", "beside", "limit", "roles"])
def test_a_problem_of_a_row_names_the_row_behind_its_file(tmp_path: Path, table: str) -> None:
    folder = written(tmp_path, windows=f"[[{table}]]\nnonsense = 1")
    assert check_rules(folder)[0].startswith(f"{folder}/windows.toml, {table} 1")


def _names(folder: Path) -> set[str]:
    return {
        "default",
        *(path.stem for path in [*(built_in() / "ladders").glob("*.toml"), *(folder / "ladders").glob("*.toml")]),
    }


def test_a_folder_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    assert check_rules(tmp_path / "nope") == [f"PLIMSOLL_RULES: no such folder: {tmp_path / 'nope'}"]


@pytest.mark.parametrize(
    "name", ["window.toml", "windows.TOML", "ladder/mine.toml", "ladders/mine.Toml", "b/ladder.toml"]
)
def test_a_file_of_rules_that_nothing_reads_is_a_problem(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    assert [problem.partition("; ")[0] for problem in check_rules(tmp_path)] == [f"{tmp_path}/{name}: unknown file"]


def test_an_empty_summary_prompt_is_a_problem(tmp_path: Path) -> None:
    assert check_rules(written(tmp_path, summary=" \n")) == [f"{tmp_path}/summary.txt: is empty"]


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "ladder.toml").write_bytes(b"\xff\xfe")
    assert check_rules(tmp_path)[0].startswith(f"{tmp_path}/ladder.toml: cannot be read: ")


def test_what_a_config_map_adds_to_its_folder_is_no_problem(tmp_path: Path) -> None:
    data = written(tmp_path / "..2025_01_01", ladder="floor = 9")
    os.symlink(data, tmp_path / "..data")
    os.symlink(Path("..data") / "ladder.toml", tmp_path / "ladder.toml")
    assert check_rules(tmp_path) == []
    assert load_rules(tmp_path).ladders["default"].floor == 9


def test_the_built_in_rules_are_found_inside_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proxy" / "rules").mkdir(parents=True)
    (tmp_path / "rules").mkdir()
    monkeypatch.setattr(rules, "PACKAGE", tmp_path / "proxy")
    assert built_in() == tmp_path / "proxy" / "rules"


def test_rules_are_values() -> None:
    with pytest.raises(TypeError):
        load_rules(None).ladders["x"] = None  # type: ignore[index]
    assert Rules({}).refusals.refusals == ()


def shelf(folder: Path, **files: str) -> Path:
    """A rules folder of lorebooks; `tides_md` is lorebooks/tides.md."""
    (folder / "lorebooks").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "lorebooks" / ".".join(name.rsplit("_", 1))).write_text(text, "utf-8")
    return folder


def test_lorebooks_are_read_and_called_by_their_files_names(tmp_path: Path) -> None:
    folder = shelf(
        tmp_path, tides_md="# Vell\nA town.", world_json='{"entries": {"0": {"key": ["a"], "content": "b"}}}'
    )
    (folder / "lorebooks" / "..data").mkdir()
    loaded = load_rules(folder)
    tides, world = Entry("A town.", "Vell", ("Vell",), searched=True), Entry("b", keys=("a",))
    assert loaded.lorebooks == {"tides": (tides,), "world": (world,)}
    assert loaded.lorebook_entries("gpt-4o") == ()
    assert loaded.lorebook_entries("gpt-4o", ["world", "tides", "world"]) == (world, tides)


def test_a_model_takes_every_lorebook_that_matches_it_unless_the_request_wants_others(tmp_path: Path) -> None:
    rows = [("GPT-*", "tides"), ("claude-*", "other"), ("*-4o", "world"), ("gpt-4o", "tides")]
    text = "".join(f'[[lorebook]]\nmodel = "{model}"\nname = "{name}"\n' for model, name in rows)
    folder = shelf(written(tmp_path, ladder=text), tides_md="# T\nt", world_md="# W\nw", other_md="# O\no")
    loaded = load_rules(folder)
    assert [entry.content for entry in loaded.lorebook_entries("gpt-4o")] == ["t", "w"]
    assert [entry.content for entry in loaded.lorebook_entries("gpt-4o", ["other"])] == ["o"]
    assert loaded.lorebook_entries("mistral") == ()


@pytest.mark.parametrize(("files", "known"), [({}, "none"), ({"tides_md": "# T\nt"}, "tides")])
def test_a_wanted_lorebook_that_there_is_not_is_the_clients_error(
    tmp_path: Path, files: dict[str, str], known: str
) -> None:
    with pytest.raises(ClientError) as caught:
        load_rules(shelf(tmp_path, **files)).lorebook_entries("gpt-4o", ["nope"])
    assert (caught.value.status, caught.value.param) == (400, "x-plimsoll-lorebook")
    assert caught.value.message.endswith(f"known are {known}.") and "nope" not in caught.value.message


def test_a_broken_lorebook_stops_the_start_with_its_file_and_the_reason(tmp_path: Path) -> None:
    folder = shelf(
        written(
            tmp_path,
            ladder='[[lorebook]]\nmodel = "a"\nname = "nope"\n[[lorebook]]\nmodel = "a"',
            ladders__mine='[[lorebook]]\nmodel = "a"\nname = "tides"',
        ),
        broken_json="{",
        row_json='{"entries": [{"keys": ["a"], "content": 5, "name": "A"}]}',
        tides_markdown="# T\nt",
        tides_md="# T\nt",
        card_png="PNG",
    )
    (folder / "lorebooks" / "one,two.md").write_text("# T\nt", "utf-8")
    (folder / "lorebooks" / "torn.md").write_bytes(b"\xff\xfe")
    problems = [problem.removeprefix(f"{folder}/") for problem in check_rules(folder)]
    kinds = "a lorebook must be a file *.json, *.md, *.markdown without a comma in its name"
    assert problems[:3] == [
        "lorebooks/broken.json: Input data was truncated",
        f"lorebooks/card.png: {kinds}",
        f"lorebooks/one,two.md: {kinds}",
    ]
    assert problems[3] == "lorebooks/row.json, entry 1 (A): content: expected str, got int"
    assert problems[4] == "lorebooks/tides.md: duplicate lorebook 'tides'"
    assert problems[5].startswith("lorebooks/torn.md: cannot be read: ")
    assert problems[6:] == [
        "ladder.toml, lorebook 2: missing field name",
        "ladder.toml, lorebook 1: unknown lorebook 'nope', known are tides, torn",
        "ladders/mine.toml: lorebook: only ladder.toml may choose a lorebook by model",
    ]
    with pytest.raises(ConfigError, match=r"lorebooks/broken\.json"):
        load_rules(folder)


def test_the_environments_budgets_stand_above_those_of_a_ladder() -> None:
    overrides = {"recall": {"budget": 7, "total": 8}, "prune_history": {"budget": 9}}
    plain, loaded = load_rules(None), load_rules(None, overrides=overrides)

    def budgets(found: Rules, name: str) -> list[int | None]:
        params = [getattr(ladder_step.apply, "keywords", {}).get("params") for ladder_step in found.ladders[name].steps]
        return [getattr(one, key) for one in params for key in ("budget", "total") if getattr(one, key, None)]

    assert budgets(plain, "rag") == [150_000, 50_000, 200_000]
    assert budgets(loaded, "rag") == [9, 7, 8]
    assert budgets(loaded, "default") == budgets(plain, "default") == []


def test_only_the_ladder_that_recalls_needs_every_request_planned() -> None:
    least = {name: ladder.least_at for name, ladder in load_rules(None).ladders.items()}
    assert least.pop("rag") == 0.0
    assert min(least.values()) >= 0.8
