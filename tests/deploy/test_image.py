"""What the image is made of: an empty environment with the packages for serving, and litellm's data without its code.

`make image-test` runs the image itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy.image import BUILDING, DATA, SERVING, TABLE, UNUSED, data, lock, without_symbols
from proxy import __version__
from proxy.config.model_table import table_file
from proxy.tokens.ranks import RANK_FILES, SOURCES
from tests.deploy.container import IMPORTED, IMPORTS, LARGEST_MB, MOST_MODULES

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "deploy" / "requirements.txt"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
ABOUT = f"Metadata-Version: 2.4\nName: plimsoll\nVersion: {__version__}\nLicense-Expression: MIT\n"


def required(requirements: Iterable[Requirement]) -> set[str]:
    """The packages that these need, with all that those need, by what is installed here."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = list(requirements)
    while waiting:
        one = waiting.pop()
        key = (re.sub(r"[-_.]+", "-", one.name).lower(), frozenset(one.extras))
        if key not in found:
            found.add(key)
            texts = distribution(one.name).requires or []
            waiting += [need for need in map(Requirement, texts) if wanted(need, one.extras)]
    return {name for name, _ in found}


def wanted(need: Requirement, extras: set[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""})


def test_the_lists_of_packages_are_what_the_packages_require() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needs = [*map(Requirement, project["project"]["dependencies"])]
    markers = {"typing-extensions"}  # only older versions of Python need it
    assert required(needs) | markers == SERVING | UNUSED
    assert required([Requirement(project["build-system"]["requires"][0])]) | {"tomlkit"} == BUILDING


def test_a_lock_keeps_the_rows_of_a_set_with_their_hashes(capsys: pytest.CaptureFixture[str]) -> None:
    lock(str(LOCK), "data", "certifi")
    rows = capsys.readouterr().out
    assert re.findall(r"^\S+(?===)", rows, re.MULTILINE) == ["certifi", "litellm"]
    assert rows in LOCK.read_text() or all(line in LOCK.read_text() for line in rows.splitlines())
    assert rows.count("--hash=sha256:") > 2
    lock(str(LOCK), "serving")
    assert set(re.findall(r"^[^\s=]+(?===)", capsys.readouterr().out, re.MULTILINE)) == SERVING


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the files of the installed litellm that matter, and one that does not."""
    installed = table_file().parent
    file = tmp_path_factory.mktemp("wheel") / "litellm-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in (TABLE, *(f"{RANK_FILES}/{source.file}" for source in SOURCES.values()), "main.py"):
            archive.write(installed / name, f"litellm/{name}")
        archive.writestr("litellm-1.2.3.dist-info/licenses/LICENSE", "MIT License")
    return file


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own that has what the image has."""
    folder = tmp_path_factory.mktemp("image") / "plimsoll"
    venv.create(folder, symlinks=True)
    site = packages(folder)
    for name in SERVING:
        for file in distribution(name).files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), site / file)
    shutil.copytree(ROOT / "proxy", site / "proxy", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "rules", site / "proxy" / "rules")
    (site / "plimsoll.dist-info").mkdir()
    (site / "plimsoll.dist-info" / "METADATA").write_text(ABOUT)
    data(str(wheel), str(site / DATA))
    return folder


@pytest.fixture(scope="module")
def finished(environment: Path) -> Path:
    """The same, as the image's build leaves it."""
    python(environment, str(ROOT / "deploy" / "image.py"), "finish", str(environment))
    return environment


def packages(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))


def python(folder: Path, *arguments: str) -> str:
    """What the environment's Python prints. Raises CalledProcessError."""
    command = [str(folder / "bin" / "python"), *arguments]
    clean = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_it_serves_and_counts_without_litellms_code(environment: Path) -> None:
    """The demo runs the simulator and the proxy, and asks both."""
    assert [*packages(environment).glob("**/litellm/**/__init__.py")] == []
    said = python(environment, "-m", "proxy.cli", "demo")
    assert "x-plimsoll-count: exact" in said and "prune_history" in said
    assert "128,000" in python(environment, "-m", "proxy.cli", "models", "gpt-4o")
    assert python(environment, "-m", "proxy.cli", "check") == "the built-in rules: no problems\n"


def test_M15_a_start_imports_what_it_did_and_no_further_package(environment: Path) -> None:
    count, *packages = python(environment, "-c", IMPORTED).split()
    assert {*packages} == IMPORTS
    assert MOST_MODULES * 0.8 < int(count) <= MOST_MODULES


def test_the_notice_names_the_version_the_licences_and_the_digest_of_every_file(environment: Path) -> None:
    folder = packages(environment) / DATA
    notice = (folder / "NOTICE").read_text()
    assert "litellm 1.2.3 (MIT" in notice and "OpenAI" in notice
    digests = dict(reversed(row.split("  ")) for row in re.findall(r"^sha256 (.+)$", notice, re.MULTILINE))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"NOTICE"}
    assert digests == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    assert files == {TABLE, "LICENSE", *(f"{RANK_FILES}/{source.file}" for source in SOURCES.values())}


def test_ranks_that_are_not_the_published_ones_are_refused(wheel: Path, tmp_path: Path) -> None:
    changed = tmp_path / "litellm-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(changed, "w") as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name) + (b"\n" if RANK_FILES in name else b""))
    with pytest.raises(ValueError, match="not the published one"):
        data(str(changed), str(tmp_path / "site"))


def test_bytecode_of_what_is_loaded_is_made_and_used(finished: Path) -> None:
    compiled = finished / "bytecode"
    assert [*packages(finished).rglob("*.pyc")] == []
    cached = {path.name.partition(".")[0] for path in compiled.rglob("*.pyc")}
    assert {"selector_events", "bootstrap", "gateway", "prune_history"} <= cached
    code = "import sys; sys.pycache_prefix = sys.argv[1]; import proxy.bootstrap as made; print(made.__cached__)"
    used = python(finished, "-c", code, str(compiled)).strip()
    assert Path(used).is_relative_to(compiled) and Path(used).is_file()


def test_what_serving_needs_is_no_larger_than_the_image_may_be_and_runs_without_symbols(finished: Path) -> None:
    (whole,) = (Path(sysconfig.get_path("purelib")) / "uvloop").glob("loop*.so")
    lean = (packages(finished) / "uvloop" / whole.name).read_bytes()
    assert lean == without_symbols(whole.read_bytes()) == without_symbols(lean) and len(lean) < whole.stat().st_size
    files = [path for path in finished.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files if "pip" not in path.relative_to(finished).parts)
    assert 40 < size / 1e6 <= LARGEST_MB
    assert "prune_history" in python(finished, "-m", "proxy.cli", "demo")


@pytest.mark.parametrize("other", [b"", b"\x7fELF\x01\x01" + bytes(90), b"MZ\x90", b"\x7fELF\x02\x02" + bytes(90)])
def test_a_library_of_another_kind_is_kept_as_it_is(other: bytes) -> None:
    assert without_symbols(other) == other


def test_the_bill_of_materials_names_every_package_and_litellms_data(finished: Path) -> None:
    bill = json.loads((finished / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/plimsoll@{__version__}"
    libraries = {part["name"]: part for part in bill["components"] if part["type"] == "library"}
    assert libraries.keys() == SERVING
    assert libraries["starlette"]["version"] == distribution("starlette").version
    table = next(part for part in bill["components"] if part["name"] == f"litellm/{TABLE}")
    assert table["type"] == "data" and table["version"] == "1.2.3" and table["hashes"]


def test_the_image_needs_no_shell_and_no_root() -> None:
    final = DOCKERFILE[DOCKERFILE.rindex("FROM ${BASE}") :]
    assert "\nRUN" not in final
    assert re.findall(r"^USER (.+)$", final, re.MULTILINE) == ["65532:65532"]
    for instruction in ("ENTRYPOINT", "CMD", "HEALTHCHECK .* CMD"):
        (words,) = re.findall(rf"^{instruction} (.+)$", final, re.MULTILINE)
        assert all(isinstance(word, str) for word in json.loads(words))
    assert re.findall(r"^ARG VERSION=(.+)$", final, re.MULTILINE) == [__version__]


def test_every_package_of_the_image_is_installed_by_its_hash() -> None:
    installs = [line for line in DOCKERFILE.splitlines() if re.search(r"pip .*(install|download)", line)]
    assert len(installs) == 7
    assert all("--require-hashes" in line or "--no-index wheels/*.whl" in line for line in installs)


def test_what_is_copied_is_what_the_build_may_see() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    shown = {name.removeprefix("!") for name in ignored if name.startswith("!")}
    copied = {name for line in re.findall(r"^COPY ([^-].+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()}
    assert copied == shown
    assert all((ROOT / name).exists() for name in copied)
    assert any(fnmatch("x/__pycache__", pattern) for pattern in ignored)
