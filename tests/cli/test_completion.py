"""`plimsoll completion`: every command and flag is completed, in a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.cli.completion import SHELLS, commands_of
from proxy.cli.main import parser
from proxy.config.settings import SETTINGS
from tests.cli.test_main import clean, ended

__all__ = ["clean"]  # the fixture

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_plimsoll
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The scripts of all shells, in files."""
    folder = tmp_path_factory.mktemp("completion")
    for name, written in SHELLS.items():
        (folder / name).write_text(written(commands_of(parser())))
    return {name: folder / name for name in SHELLS}


def completed(script: Path, *line: str, folder: Path | None = None) -> list[str]:
    """What bash offers for the last word of a line."""
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", ASK, "-", str(script), *line], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes_every_command(scripts: dict[str, Path]) -> None:
    assert completed(scripts["bash"], "plimsoll", "") == [*parser().commands, "--help", "--version"]
    assert completed(scripts["bash"], "plimsoll", "se") == ["serve"]
    assert completed(scripts["bash"], "plimsoll", "zz") == []


def test_bash_completes_the_flags_of_a_command_and_no_others(scripts: dict[str, Path]) -> None:
    flags = completed(scripts["bash"], "plimsoll", "serve", "--")
    assert {setting.flag for setting in SETTINGS} <= {*flags} and "--json" not in flags
    assert completed(scripts["bash"], "plimsoll", "inspect", "--js") == ["--json"]
    assert completed(scripts["bash"], "plimsoll", "serve", "--admin-p") == ["--admin-port"]


def test_bash_completes_files_programs_and_known_words(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "request.json").touch()
    assert completed(scripts["bash"], "plimsoll", "inspect", "req", folder=tmp_path) == ["request.json"]
    assert completed(scripts["bash"], "plimsoll", "completion", "") == ["bash", "zsh", "fish"]
    assert "env" in completed(scripts["bash"], "plimsoll", "run", "--page", "--", "env", folder=tmp_path)


def test_bash_calls_it_for_the_command_plimsoll(scripts: dict[str, Path]) -> None:
    told = subprocess.run(
        ["bash", "--norc", "-c", f"source {scripts['bash']}; complete -p plimsoll"], capture_output=True, text=True
    )
    assert "-F _plimsoll plimsoll" in told.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shells_script_names_every_command_and_flag_and_is_read_by_that_shell(
    scripts: dict[str, Path], shell: str
) -> None:
    text = scripts[shell].read_text()
    for command in commands_of(parser()):
        assert command.name in text
        assert all(flag.name.removeprefix("--") in text for flag in command.flags)
    if (binary := shutil.which(shell)) is not None:
        done = subprocess.run([binary, "-n", str(scripts[shell])], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str], scripts: dict[str, Path]) -> None:
    for shell, path in scripts.items():
        assert ended(capsys, "completion", shell) == (0, path.read_text(), "")
    code, _, err = ended(capsys, "completion", "bahs")
    assert code == 2 and "choose from" in err
