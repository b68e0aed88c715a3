"""Builds what is released, and checks it as a stranger meets it: from a clean clone, in an empty environment.

    python deploy/release.py build [FOLDER]   make release: wheel, source distribution and bill of materials
    python deploy/release.py check            make release-check: the same of a clean clone of HEAD, installed and used

To build takes what `make setup` installs, to check also what tests/deploy needs. The image has a command of its own:
make image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email.parser import Parser
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from deploy.image import DATA, SERVING, component, data_of  # noqa: E402

LOCK = ROOT / "deploy" / "requirements.txt"
LARGEST_MB = 120  # of the installed package and all that it needs
WAIT_S = 120.0  # for a first start
ARM = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
OVERLONG = {
    "model": "gpt-4",
    "messages": [{"role": "user", "content": f"Entry {i}: {'the tide is high today ' * 20}"} for i in range(200)],
}
ASK = """
import json, os, sys, urllib.request
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", sys.argv[1].encode(),
                                 {"content-type": "application/json"})
print(json.loads(urllib.request.urlopen(request).read())["usage"]["prompt_tokens"])
"""


def say(text: str) -> None:
    print(f"ok    {text}", flush=True)


def run(*command: str | Path, **options: Any) -> str:
    """The output of a command. Ends with what it said if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, **options
    )
    if done.returncode:
        raise SystemExit(f"WRONG {' '.join(map(str, command))[:200]}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def expect(good: bool, text: str) -> None:
    """Says what holds, or ends with it."""
    if not good:
        raise SystemExit(f"WRONG {text}")
    say(text)


# What is built


def pins(lock: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The packages of a lock file, by name: version and the digests of its archives (SHA-256)."""
    rows = re.split(r"\n(?=\S)", lock)
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for row in rows:
        if match := re.match(r"([\w.-]+)==(\S+)", row):
            found[canonicalize_name(match[1])] = match[2], tuple(re.findall(r"sha256:(\w+)", row))
    return found


def needed(requirements: Sequence[str], extras: Sequence[str] = ()) -> Iterator[Requirement]:
    """The requirements that hold on this machine."""
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def closure(requirements: Sequence[str]) -> dict[str, tuple[Distribution, set[str]]]:
    """All that is needed, directly or not, as it is installed here: by name, with the names of what each needs."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    waiting = [*needed(requirements)]
    asked: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), tuple(sorted(requirement.extras))
        if (name, extras) in asked:
            continue
        asked.add((name, extras))
        one = distribution(name)
        more = [*needed(one.requires or (), extras)]
        _, names = found.setdefault(name, (one, set()))
        names |= {canonicalize_name(other.name) for other in more}
        waiting += more
    return found


def bill(wheel: Path, lock: str) -> dict[str, Any]:
    """The bill of materials (CycloneDX) of a wheel: what it needs, at the pinned versions, with licences and digests.

    Raises ValueError if what is installed here is not what is pinned."""
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        about = PathDistribution(zipfile.Path(archive, f"{folder}/"))
        own, requires = component(about), about.requires or []
        notice = archive.read(f"{DATA}/NOTICE").decode()
    own["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    pinned, parts = pins(lock), closure(requires)
    components, graph = [], []
    for name, (one, names) in sorted(parts.items()):
        version, digests = pinned[name]
        if one.version != version:
            raise ValueError(f"{name} {one.version} is installed, {version} is pinned: make setup")
        part = component(one)
        components.append({**part, "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests]})
        graph.append({"ref": part["bom-ref"], "dependsOn": sorted(f"pkg:pypi/{n}@{pinned[n][0]}" for n in names)})
    direct = sorted({canonicalize_name(one.name) for one in needed(requires)})
    graph.insert(0, {"ref": own["bom-ref"], "dependsOn": [f"pkg:pypi/{name}@{pinned[name][0]}" for name in direct]})
    kind = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    parts_of_all = [*components, *data_of(notice)]
    return {**kind, "metadata": {"component": own}, "components": parts_of_all, "dependencies": graph}


def build(folder: Path, root: Path = ROOT) -> Path:
    """Builds a checkout into an empty or new folder, and returns the wheel."""
    for old in [*folder.glob("plimsoll-*")] if folder.is_dir() else []:
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder.resolve(), cwd=root)
    (wheel,) = folder.glob("*.whl")
    made = json.dumps(bill(wheel, (root / "deploy" / "requirements.txt").read_text()), indent=1)
    (folder / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json").write_text(made + "\n")
    return wheel


# What is checked


def size(folder: Path) -> float:
    """Megabytes of all files."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def described(wheel: Path) -> None:
    """That an index can show it."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = Parser().parsestr(archive.read(name).decode())
        expect("proxy/py.typed" in archive.namelist(), "the wheel says that it is typed")
    text = str(about.get_payload())
    relative = re.findall(r"\]\((?![a-z]+:|#)([^)]+)\)", text)
    expect(not relative, f"its README has {len(text):,} characters and no relative link {relative[:3] or ''}")
    expect(bool(about.get_all("Classifier")) and bool(about["Keywords"]), "it has classifiers and keywords")


def environment_of(wheel: Path, lock: str, folder: Path) -> Path:
    """A new environment with the wheel and what it needs, at the pinned versions and nothing else; its python."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python*/site-packages"))
    before = size(packages)
    constraints = folder / "pins.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, (version, _) in pins(lock).items()))
    began = time.monotonic()
    quiet = ("-q", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", *quiet, "-c", constraints, wheel, env=CLEAN | {"PIP_CONSTRAINT": ""})
    took, added = time.monotonic() - began, size(packages) - before
    expect(added <= LARGEST_MB, f"installed in {took:.0f} s: {added:.0f} MB of {LARGEST_MB}")
    return python


CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PLIMSOLL_", "PYTHON", "OPENAI_"))}


def complete(python: Path, made: Mapping[str, Any]) -> None:
    """That the bill of materials is what was installed."""
    code = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    found = {canonicalize_name(name): version for name, version in json.loads(run(python, "-c", code, env=CLEAN))}
    installed = {name: version for name, version in found.items() if name not in ("pip", "setuptools", "plimsoll")}
    parts = {part["name"]: part["version"] for part in made["components"] if part["type"] == "library"}
    expect(parts == installed, f"the bill of materials has the {len(parts)} packages that were installed, and no other")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def started(plimsoll: Path, command: str, port: int, *arguments: str) -> Iterator[None]:
    """One of our servers, until the end of the block."""
    process = subprocess.Popen(
        [plimsoll, command, "--port", str(port), *arguments],
        env=CLEAN,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                break
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"WRONG plimsoll {command} does not start")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(60)


def used(plimsoll: Path, version: str, folder: Path) -> None:
    """That each command works there."""
    expect(run(plimsoll, "--version", env=CLEAN).strip() == f"plimsoll {version}", f"plimsoll --version: {version}")
    run(plimsoll, "check", env=CLEAN)
    request, recording = folder / "request.json", folder / "recorded.jsonl"
    request.write_text(json.dumps(OVERLONG))
    recording.write_text(f"{json.dumps(OVERLONG)}\n" * 3)
    plan = json.loads(run(plimsoll, "inspect", "--json", request, env=CLEAN, cwd=folder))
    expect(plan["fits"] and plan["tokens"]["prompt_sent"] < plan["tokens"]["prompt"], "plimsoll inspect plans a cut")
    report = json.loads(run(plimsoll, "replay", "--json", recording, env=CLEAN, cwd=folder))
    expect(bool(report), "plimsoll replay reports")
    upstream, port, began = free_port(), free_port(), time.monotonic()
    with started(plimsoll, "simulate", upstream):
        url = f"http://127.0.0.1:{upstream}/v1"
        with started(plimsoll, "serve", port, "--upstream", url):
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                json.dumps(OVERLONG).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
                steps = answer.headers["x-plimsoll-steps"]
            took = time.monotonic() - began
            expect(bool(steps), f"plimsoll serve answers what is too long, {took:.1f} s after the start ({steps})")
        python = plimsoll.with_name("python")
        body = json.dumps(OVERLONG)
        said = run(plimsoll, "run", "--upstream", url, "--", python, "-c", ASK, body, env=CLEAN, cwd=folder)
        expect(0 < int(said) <= 8192, "plimsoll run -- python -c ... is served")


def for_arm(lock: str, folder: Path) -> None:
    """That whatever the image needs is there for arm64, with a pinned digest: that image cannot be built everywhere."""
    rows = re.split(r"\n(?=\S)", lock)
    (folder / "serving.txt").write_text("\n".join(row for row in rows if row.partition("==")[0] in SERVING) + "\n")
    platforms = [word for one in ARM for word in ("--platform", one)]
    fixed = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--python-version", "3.13", *platforms)
    run(
        *(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *fixed),
        *("-r", folder / "serving.txt", "-d", folder / "arm64"),
    )
    found = len([*(folder / "arm64").iterdir()])
    expect(found == len(SERVING), f"the {found} packages of the image are there for arm64, with pinned digests")


def check() -> int:
    """Everything, of a clean clone of HEAD. Returns 0, or ends with what is wrong."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-release-") as name:
        folder = Path(name)
        clone = folder / "clone"
        run("git", "clone", "-q", "--no-local", ROOT, clone)
        say(f"cloned {run('git', '-C', clone, 'rev-parse', '--short', 'HEAD').strip()}")
        lock = (clone / "deploy" / "requirements.txt").read_text()
        run(sys.executable, "deploy/release.py", "build", "dist", cwd=clone, env=CLEAN)
        (wheel,) = (clone / "dist").glob("*.whl")
        (sdist,) = (clone / "dist").glob("*.tar.gz")
        (made,) = (clone / "dist").glob("*.cdx.json")
        version = wheel.name.split("-")[1]
        say(f"built {wheel.name} ({size_of(wheel)}), {sdist.name} ({size_of(sdist)}), {made.name} ({size_of(made)})")
        described(wheel)
        python = environment_of(wheel, lock, folder / "environment")
        complete(python, json.loads(made.read_text()))
        used(python.with_name("plimsoll"), version, folder)
        charts = ("tests/deploy/test_helm.py", "-k", "lint", "-p", "no:cacheprovider")
        run(sys.executable, "-m", "pytest", "-q", *charts, cwd=clone, env=CLEAN | {"CI": "true"})
        say("helm lint --strict has nothing against the chart")
        for_arm(lock, folder)
    return 0


def size_of(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    if sys.argv[1] == "build":
        print(build(Path(sys.argv[2] if len(sys.argv) > 2 else "dist")))
    elif sys.argv[1] == "check":
        raise SystemExit(check())
