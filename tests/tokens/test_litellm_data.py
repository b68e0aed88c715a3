"""Of the data that the package ships and those of an installed litellm, the newer ones are read."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from proxy.tokens import litellm_data
from proxy.tokens.litellm_data import FROM, Data, found, path_of, version_of_data


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "litellm_data"
    folder.mkdir()
    (folder / "table.json").write_text("{}")
    monkeypatch.setattr(litellm_data, "SHIPPED", folder)
    return folder


def test_those_of_an_installed_litellm_are_found_with_their_version() -> None:
    (installed,) = found()
    assert installed.folder.name == "litellm" and FROM.fullmatch(f"litellm {installed.version}")


@pytest.mark.parametrize(("version", "first"), [("999.0.1", True), ("1.9.9", False), ("1.10.0", False)])
def test_the_newer_ones_win(shipped: Path, version: str, first: bool) -> None:
    (shipped / "NOTICE").write_text(f"The files in this folder are data from litellm {version} (MIT licence).")
    assert (found()[0] == Data(shipped, version)) == first and len(found()) == 2
    assert (version_of_data() == version) == first


def test_versions_are_compared_by_their_numbers(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shipped / "NOTICE").write_text("data from litellm 1.100.2 (MIT licence)")
    monkeypatch.setattr(litellm_data, "version", lambda name: "1.99.9")
    assert version_of_data() == "1.100.2"


def test_what_one_folder_does_not_have_is_taken_from_the_other(shipped: Path) -> None:
    (shipped / "NOTICE").write_text("data from litellm 0.1 (MIT licence)")
    assert path_of("table.json") == shipped / "table.json"
    (shipped / "NOTICE").write_text("data from litellm 999.1 (MIT licence)")
    assert path_of("main.py") == found()[1].folder / "main.py"
    assert path_of("no such file") is None


def test_where_nothing_is_installed_only_what_is_shipped_counts(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert found() == [] and version_of_data() == ""
    (shipped / "NOTICE").write_text("no version")
    assert found() == [Data(shipped)]


def test_a_folder_of_litellm_without_its_metadata_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(litellm_data, "version", missing)
    assert version_of_data() == "" and len(found()) == 1
