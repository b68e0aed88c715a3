"""The documents agree with the code: every link resolves, and tables of settings, metrics and steps are complete."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from proxy import __version__
from proxy.config.ladders import STEPS, known_steps
from proxy.config.model_table import CAPABILITY_NAMES
from proxy.config.otel import VARIABLES
from proxy.config.rules import check_rules, load_rules
from proxy.config.settings import SETTINGS
from tests.tokens.vocabulary import write

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
README, DEPLOY, RULES = "README.md", "deploy/README.md", "rules/README.md"
PAGES = "deploy/docs"
SETTINGS_PAGE, METRICS_PAGE, LOGS_PAGE = f"{PAGES}/settings.md", f"{PAGES}/metrics.md", f"{PAGES}/logs.md"
TEN_MINUTES = 2_200  # words
ELSEWHERE = {"PLIMSOLL_ADMIN_URL"}  # of commands, not of serving


def documents() -> list[str]:
    """Every Markdown file of the project, but what others wrote."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(str(path) for path in found if not re.search(r"(^|/)(\.|node_modules/)", str(path)))


def text_of(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


def prose_of(document: str) -> str:
    """The text without its blocks of code."""
    return FENCE.sub("", text_of(document))


def anchors(document: str) -> set[str]:
    """What GitHub makes of its headings."""
    headings = re.findall(r"^#+ +(.+?)\s*$", prose_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(document: str, heading: str | None = None) -> Iterator[list[str]]:
    """The cells of the tables' rows under a heading of the second level, or of the whole document."""
    section = text_of(document)
    if heading is not None:
        section = section.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def table(document: str, heading: str | None = None) -> Mapping[str, list[str]]:
    """Those rows by the one name in their first cell; no name has two."""
    found = [(CODE.findall(cells[0])[0], cells[1:]) for cells in rows(document, heading)]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize("document", documents())
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(document: str) -> None:
    for link in LINK.findall(prose_of(document)):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (ROOT / document).parent / unquote(parts.path) if parts.path else ROOT / document
        assert target.exists(), link
        if parts.fragment:
            assert parts.fragment in anchors(str(target.resolve().relative_to(ROOT))), link


def linked_from(document: str) -> set[str]:
    return {urlsplit(link).path for link in LINK.findall(prose_of(document))}


def pages() -> list[str]:
    return [document for document in documents() if document.startswith(f"{PAGES}/")]


def test_the_readme_links_to_every_other_document() -> None:
    assert linked_from(README) >= set(documents()) - {README} - set(pages())


def test_the_index_of_operators_links_to_each_page_and_has_no_other_text() -> None:
    assert linked_from(DEPLOY) == {page.removeprefix("deploy/") for page in pages()} | {"examples/README.md"}
    assert len(text_of(DEPLOY).split()) < 400


@pytest.mark.parametrize("page", pages())
def test_each_page_for_operators_is_read_in_ten_minutes(page: str) -> None:
    assert len(text_of(page).split()) <= TEN_MINUTES


def test_every_setting_is_in_the_table_with_its_default() -> None:
    defaults = {name: "".join(CODE.findall(cells[0])) for name, cells in table(SETTINGS_PAGE).items()}
    assert defaults == {setting.name: setting.default for setting in SETTINGS}


def test_every_variable_of_traces_is_in_the_table_with_its_default() -> None:
    defaults = {name: "".join(CODE.findall(cells[0])) for name, cells in table(LOGS_PAGE, "Traces").items()}
    assert defaults == {variable.name: variable.default for variable in VARIABLES}


def test_no_document_names_a_setting_that_there_is_not() -> None:
    known = {setting.name for setting in SETTINGS} | ELSEWHERE
    for document in set(documents()) - {"CHANGELOG.md"}:
        named = set(re.findall(r"\bPLIMSOLL_[A-Z_]*[A-Z]\b(?!_?\*)", prose_of(document)))
        assert named <= known, document


def test_the_readme_has_the_defaults_of_the_settings_that_it_names() -> None:
    known = {setting.name: setting.default for setting in SETTINGS}
    for names, defaults, *_ in rows(README, "Settings that matter"):
        told = [CODE.findall(cell) for cell in defaults.split(",")]
        assert ["".join(cell) for cell in told] == [known[name] for name in CODE.findall(names)][: len(told)]


def test_every_metric_is_in_the_table() -> None:
    named: set[str] = set()
    for path in (ROOT / "proxy").rglob("*.py"):
        named |= set(re.findall(r'"(plimsoll_[a-z_]+)"', path.read_text("utf-8")))
    assert table(METRICS_PAGE).keys() == named


def test_no_document_names_a_metric_that_there_is_not() -> None:
    for document in set(documents()) - {"CHANGELOG.md"}:
        named = set(re.findall(r"\bplimsoll_[a-z_]+", text_of(document)))
        assert named <= table(METRICS_PAGE).keys(), document


def test_every_step_is_in_the_table_with_its_parameters_and_their_defaults() -> None:
    steps = table(RULES, "Steps")
    assert steps.keys() == set(known_steps())
    for name, cells in steps.items():
        told = dict(_parameters(cells[-1]))
        fields = {field.name: field.default for field in dataclasses.fields(_params(name))}
        assert told.keys() | {"at"} == fields.keys() | {"at"}, name
        for parameter, value in told.items():
            assert not value or value == _written(fields[parameter]), f"{name}.{parameter}"


def _parameters(cell: str) -> Iterator[tuple[str, str]]:
    """The names at the beginning of what is said of each parameter, and their defaults; empty where none is said."""
    for part in cell.split("; "):
        for code in CODE.findall(part.partition(":")[0]):
            name, _, default = code.partition(" = ")
            yield name, default


def _params(step: str) -> type:
    params: type = importlib.import_module(f"{STEPS}.{step}").Params
    return params


def _written(value: object) -> str:
    """A default as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ", ".join(f'"{v}"' for v in value) + "]" if isinstance(value, tuple) else str(value)


def test_every_ladder_is_in_the_table() -> None:
    assert table(RULES, "Ladders").keys() == load_rules(None).ladders.keys()


def test_every_file_of_the_rules_is_in_the_table() -> None:
    files = {path.name for path in (ROOT / "rules").iterdir() if path.is_file()} - {"README.md"}
    text = text_of(RULES).partition("\n## ")[0]
    assert {CODE.findall(line)[0] for line in text.splitlines() if line.startswith("| `")} == files | {
        "ladders/*.toml",
        "lorebooks/*",
    }


def toml_of(document: str) -> list[str]:
    return re.findall(r"```toml\n(.*?)```", text_of(document), re.DOTALL)


def test_the_readmes_rules_for_teams_are_a_file_without_problems(tmp_path: Path) -> None:
    (example,) = toml_of(README)
    (tmp_path / "callers.toml").write_text(example, "utf-8")
    assert check_rules(tmp_path) == [] and load_rules(tmp_path).callers.names == {"search"}


def test_the_examples_of_rules_are_a_folder_without_problems(tmp_path: Path) -> None:
    files = {"step": "ladder.toml", "lorebook": "ladder.toml", "window": "windows.toml"}
    files |= {
        "family": "families.toml",
        "refusal": "refusals.toml",
        "upstream": "upstreams.toml",
        "counter": "counters.toml",
        "key_check": "key_checks.toml",
        "caller": "callers.toml",
        "budget": "callers.toml",
        "compaction": "compactions.toml",
    }
    for example in toml_of(RULES):
        kind = re.findall(r"^\[\[(\w+)\]\]", example, re.MULTILINE)[0]
        with (tmp_path / files[kind]).open("a", encoding="utf-8") as file:
            file.write(example)
    write(tmp_path / "llama3.json")
    (tmp_path / "lorebooks").mkdir()
    (tmp_path / "lorebooks" / "eldoria.md").write_text("# Vell\nA town with nine bells.")
    assert sorted(path.name for path in tmp_path.glob("*.toml")) == sorted({*files.values()})
    assert check_rules(tmp_path) == []


@pytest.mark.parametrize("document", [RULES, "rules/windows.toml"])
def test_every_capability_of_models_is_listed(document: str) -> None:
    found = re.search(r"can = .*# of: (.+)", text_of(document))
    assert found is not None and set(found[1].split(", ")) == CAPABILITY_NAMES


def test_every_package_is_in_the_architecture() -> None:
    modules = (path.relative_to(ROOT / "proxy") for path in (ROOT / "proxy").rglob("*.py"))
    packages = {module.parts[0].removesuffix(".py") for module in modules}
    named = {name.strip("/").removesuffix(".py") for name in table_of_packages()}
    assert {name for name in named if "/" not in name} == packages - {"__init__"}
    assert all((ROOT / "proxy" / name).is_dir() for name in named if "/" in name)


def table_of_packages() -> list[str]:
    lines = text_of("proxy/README.md").partition("| package | subject |")[2].partition("\n\n")[0].splitlines()
    return [CODE.findall(line)[0] for line in lines if line.startswith("| `")]


def test_every_constant_of_the_ranking_that_is_documented_is_one() -> None:
    for module, name in set(re.findall(r"`([a-z_0-9]+)\.([A-Z][A-Z_0-9]+)`", text_of("proxy/fit/relevance/README.md"))):
        assigned = re.compile(rf"^(\w+, )*{name}\b.* = ", re.MULTILINE)
        files = (ROOT / "proxy" / "fit").rglob(f"{module}.py")
        assert sum(bool(assigned.search(file.read_text("utf-8"))) for file in files) == 1, name


def test_every_measurement_is_documented() -> None:
    folder, text = ROOT / "tests" / "bench", text_of("tests/bench/README.md")
    programs = (*folder.glob("[!_]*.py"), *folder.glob("*/__main__.py"))
    for path in (path for path in programs if "ArgumentParser(" in path.read_text("utf-8")):
        name = path.parent.name if path.name == "__main__.py" else path.stem
        assert re.search(rf"\btests[./]bench[./]{name}\b|\bmake {name}\b", text), name


def test_each_measurement_is_a_module_that_there_is() -> None:
    for module in re.findall(r"python -m (tests\.bench\.\w+)", text_of("tests/bench/README.md")):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_the_quick_tests_are_there() -> None:
    rows = (ROOT / "tests/quick").read_text("utf-8").split()
    assert rows and all((ROOT / row.removeprefix("--ignore=")).exists() for row in rows)
    assert "make test ARGS=@tests/quick" in text_of("proxy/README.md")


def test_B17_the_changelog_has_this_version_with_its_day_below_what_is_not_released_yet() -> None:
    headings = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", headings[1])
    released = text_of("CHANGELOG.md").partition(f"\n## {headings[1]}\n")[2].partition("\n## ")[0]
    assert len(released.split()) <= 600, "short, and for users"
