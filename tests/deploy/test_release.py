"""What is released: a README that an index can show, metadata, a bill of materials of what is pinned."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest

from deploy.build_hook import REPOSITORY, for_index
from deploy.image import SERVING, UNUSED
from deploy.release import ARM, CLEAN, LOCK, bill, build, closure, described, pins, size
from proxy import __version__
from tests.deploy.renders import ROOT
from tests.test_documents import LINK, documents, text_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that `make release` makes."""
    made = tmp_path_factory.mktemp("release")
    build(made)
    return made


def wheel_in(folder: Path) -> Path:
    return next(folder.glob("*.whl"))


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"plimsoll-{__version__}.dist-info/METADATA").decode())


def test_one_command_makes_a_wheel_a_source_distribution_and_a_bill_of_materials(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    base = f"plimsoll-{__version__}"
    assert names == {f"{base}-py3-none-any.whl", f"{base}.tar.gz", f"{base}.cdx.json"}
    makefile = (ROOT / "Makefile").read_text()
    assert "\n\t$(BIN)/python deploy/release.py build dist\n" in makefile
    assert "\nrelease-check: .venv/.test\n\t$(BIN)/python deploy/release.py check\n" in makefile


def test_the_metadata_are_for_people_who_search(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described(wheel_in(folder))
    about = metadata(wheel_in(folder))
    assert about["Metadata-Version"] == "2.4" and about["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in (about.get_all("Classifier") or []) and "openai" in about["Keywords"]
    assert about.get_all("Project-URL") is None, "there is no URL that is true"


def test_a_readme_for_an_index_has_no_relative_link_and_its_words_are_those_of_the_readme(folder: Path) -> None:
    shown = str(metadata(wheel_in(folder)).get_payload())
    assert all(re.match("[a-z]+:|#", link) for link in LINK.findall(shown))
    assert "](" not in re.sub(r"\]\((#|[a-z]+:)", "", shown)
    assert shown.startswith("# Plimsoll\n") and "## Glossary" in shown


@pytest.mark.parametrize("document", documents())
def test_links_and_pictures_lead_into_the_repository_where_there_is_one(document: str) -> None:
    text = text_of(document)
    shown = for_index(text, "https://git.example/me/plimsoll")
    targets = LINK.findall(shown)
    assert len(targets) == len(LINK.findall(text))
    assert all(re.match("[a-z]+:|#", target) for target in targets)


@pytest.mark.parametrize(
    ("text", "without", "within"),
    [
        ("see [the page](a/b.md#c).", "see the page.", "see [the page](R/blob/HEAD/a/b.md#c)."),
        ("[terms](#glossary) [us](https://x.example)", "[terms](#glossary) [us](https://x.example)", None),
        ("![A page](proxy/page.png)", "", "![A page](R/raw/HEAD/proxy/page.png)"),
        ("[![A](a.png)](b.md)", "", "[![A](R/raw/HEAD/a.png)](R/blob/HEAD/b.md)"),
        ("![A](https://x.example/a.png)", "![A](https://x.example/a.png)", None),
    ],
)
def test_each_kind_of_link_is_rewritten(text: str, without: str, within: str | None) -> None:
    assert for_index(text) == without
    assert for_index(text, "https://r.example") == (
        without if within is None else within.replace("R/", "https://r.example/")
    )


def test_a_published_repository_is_named_by_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    env = CLEAN | {REPOSITORY: "https://git.example/me/plimsoll/"}
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    about = metadata(wheel_in(tmp_path))
    assert "Source, https://git.example/me/plimsoll" in (about.get_all("Project-URL") or [])
    assert "](https://git.example/me/plimsoll/blob/HEAD/rules/README.md" in str(about.get_payload())


def test_the_bill_names_what_is_needed_at_the_pinned_versions(folder: Path) -> None:
    made = json.loads(next(folder.glob("*.cdx.json")).read_text())
    own = made["metadata"]["component"]
    assert (made["bomFormat"], own["purl"]) == ("CycloneDX", f"pkg:pypi/plimsoll@{__version__}")
    assert own["hashes"][0]["content"] == hashlib.sha256(wheel_in(folder).read_bytes()).hexdigest()
    libraries = {part["name"]: part for part in made["components"] if part["type"] == "library"}
    assert SERVING - {"typing-extensions"} <= libraries.keys() <= SERVING | UNUSED
    pinned = pins(LOCK.read_text())
    for name, part in libraries.items():
        assert part["version"] == pinned[name][0] and part["licenses"]
        assert {one["content"] for one in part["hashes"]} == {*pinned[name][1]} != set()
    assert [part for part in made["components"] if part["type"] == "data"]
    refs = {part["bom-ref"] for part in libraries.values()}
    graph = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    assert graph.keys() == refs | {own["bom-ref"]} and {ref for row in graph.values() for ref in row} <= refs
    assert f"pkg:pypi/starlette@{pinned['starlette'][0]}" in graph[own["bom-ref"]]


def test_what_is_installed_and_not_pinned_is_not_released(folder: Path) -> None:
    lock = LOCK.read_text().replace(f"\nstarlette=={distribution('starlette').version} ", "\nstarlette==0.0.1 ")
    with pytest.raises(ValueError, match=r"starlette .* is installed, 0\.0\.1 is pinned"):
        bill(wheel_in(folder), lock)


def test_extras_that_a_package_asks_for_are_followed_and_others_are_not() -> None:
    found = closure(["redis[hiredis]>=8"])
    assert found.keys() >= {"redis", "hiredis"} and "hiredis" in found["redis"][1]
    assert "hiredis" not in closure(["redis>=8"])
    assert closure(["litellm; extra == 'litellm'"]) == {}


def test_pins_are_versions_and_digests() -> None:
    lock = "# by hand\none.of-them==1.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    lock += "Two==3 \\\n    --hash=sha256:cc\n"
    assert pins(lock) == {"one-of-them": ("1.2", ("aa", "bb")), "two": ("3", ("cc",))}


def test_a_size_is_that_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/b", "c"):
        (tmp_path / name).write_bytes(bytes(500_000))
    assert size(tmp_path) == 1.0 and all("aarch64" in one for one in ARM)
