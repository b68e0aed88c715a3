"""U33: what tests need of the system is named before it is installed, and nothing is installed where one says no."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("servers_setup.sh")
TOOLS = ("sed", "sort", "chmod", "rm")
NEEDED = {"redis-server", "prometheus", "nginx-light", "chromium", "curl"}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The programs of a machine that has none of the servers; its apt-get writes down what it is asked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name) or name)
    for name, script in (("apt-get", f'echo apt-get "$@"; echo "$@" >> {tmp_path}/asked'), ("id", "echo 0")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def setup(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": str(machine / "bin"), "POLICY": str(machine / "policy"), **environment}
    return subprocess.run(["/bin/sh", str(SCRIPT)], env=given, capture_output=True, text=True, timeout=60)


def test_U33_what_is_installed_is_said_before(machine: Path) -> None:
    done = setup(machine)
    (line,) = done.stdout.splitlines()
    said, _, _ = line.removeprefix("installing for the tests, by apt-get as root: ").partition(" (")
    asked = (machine / "asked").read_text().splitlines()
    assert set(said.split()) == NEEDED == set(asked[1].split()[-len(NEEDED) :]) and "APT=no" in line
    assert asked[0].startswith("update") and asked[1].startswith("install")
    assert done.returncode == 0 and not (machine / "policy").exists()


def test_U33_nothing_is_installed_where_one_says_no(machine: Path) -> None:
    done = setup(machine, APT="no")
    assert (done.returncode, done.stdout, (machine / "asked").exists()) == (0, "", False)
    assert "chromium is not installed, and was not installed here: the tests that need it are skipped" in done.stderr
    assert setup(machine, APT="no", CI="true").returncode == 1


def test_U33_what_is_there_is_not_installed(machine: Path) -> None:
    for name in (*NEEDED - {"nginx-light"}, "nginx", "promtool", "node", "npm"):
        (machine / "bin" / name).symlink_to("/bin/true")
    done = setup(machine)
    assert (done.returncode, done.stdout, done.stderr, (machine / "asked").exists()) == (0, "", "", False)
