"""Builds the image and runs it as Kubernetes would: read-only, as a foreign user, without capabilities.

    python -m tests.deploy.container build    make image
    python -m tests.deploy.container test     make image-test

It takes Docker where an engine answers, else buildah and runc, which it installs where apt-get can. Where the base
image cannot be pulled, it makes a stand-in of that name from Debian packages. It needs nothing but Python.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
CACHE = ROOT / ".bench" / "image"
BASE = DOCKERFILE.read_text().partition("\nARG BASE=")[2].split()[0]
VERSION = (ROOT / "proxy" / "__init__.py").read_text().partition('__version__ = "')[2].partition('"')[0]
QUALIFIED_BASE = f"docker.io/library/{BASE}"  # buildah takes a short name only where it is configured
IMAGE = f"localhost/plimsoll:{VERSION}"
STAND_IN = "a stand-in from Debian packages"
LARGEST_MB = 80
# What a start imports beside our own modules: how many, and of which packages. One package more may cost a second.
MOST_MODULES = 480
IMPORTS = frozenset(
    """aiohappyeyeballs anyio cryptography hiredis httptools httpx idna isal msgspec prometheus_client proxy redis
    starlette tiktoken tiktoken_ext typing_extensions uvloop xxhash""".split()
)
# Prints both, without what Cython adds, and without what a distribution's Python imports from its own folders. In the
# image nothing else is installed: elsewhere some packages import more.
IMPORTED = """
import sys, proxy.cli.main, proxy.bootstrap
names = [name.partition(".")[0] for name in sys.modules if "cython" not in name]
hook = getattr(sys.modules.get("sitecustomize"), "__file__", None)
own = {"sitecustomize"} if hook and not hook.startswith(sys.prefix) else set()
print(len(names) - names.count("proxy"), *sorted({*names} - {*sys.stdlib_module_names, "__main__"} - own))
"""
WAIT_S = 60.0
SHARED_AFTER_S = 2.0  # workers write their metrics every second
HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Say hello."}]}


def run(*command: str, **options: Any) -> str:
    """The output of a command. Raises CalledProcessError."""
    said: str = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout
    return said.strip()


def works(*command: str) -> bool:
    """Whether a command is there and succeeds."""
    quiet = subprocess.DEVNULL
    return shutil.which(command[0]) is not None and not subprocess.call(command, stdout=quiet, stderr=quiet)


def need(*commands: str) -> None:
    """Installs commands that are missing, by the names of their packages. Ends with the reason where it cannot."""
    missing = [command for command in commands if shutil.which(command) is None]
    if missing and os.getuid() == 0 and shutil.which("apt-get"):
        print(f"installing {', '.join(missing)}", flush=True)
        for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            subprocess.call(["apt-get", "-qq", *command], stdout=subprocess.DEVNULL)
    if missing := [command for command in missing if shutil.which(command) is None]:
        raise SystemExit(f"neither a Docker engine nor {', '.join(missing)} is here, and they could not be installed")


class Docker:
    """A Docker engine, by its client."""

    def build(self) -> None:
        """Builds the image. The base is fetched apart, so that its size is known."""
        subprocess.call(["docker", "pull", "-q", BASE])
        run("docker", "build", "-f", str(DOCKERFILE), "-t", IMAGE, *build_arguments(), str(ROOT))

    def size(self, image: str) -> int:
        return int(run("docker", "image", "inspect", "--format", "{{.Size}}", image))

    def config(self) -> dict[str, Any]:
        """The image's own configuration."""
        found: dict[str, Any] = json.loads(run("docker", "image", "inspect", "--format", "{{json .Config}}", IMAGE))
        return found

    @contextmanager
    def started(self, name: str, arguments: Sequence[str], settings: Mapping[str, str]) -> Iterator[Container]:
        """A running container."""
        confined = ("--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
        given = [word for setting, value in settings.items() for word in ("-e", f"{setting}={value}")]
        options = (*confined, "--security-opt", "no-new-privileges", *given)
        own = run("docker", "run", "-d", *options, IMAGE, *arguments)
        pid = int(run("docker", "inspect", "--format", "{{.State.Pid}}", own))
        try:
            yield Container(pid, lambda: int(run("docker", "wait", own)), ("docker", "exec", own))
        finally:
            subprocess.call(["docker", "rm", "-f", own], stdout=subprocess.DEVNULL)


class Buildah:
    """buildah and runc, without a daemon."""

    def __init__(self) -> None:
        if os.getuid():
            raise SystemExit("no Docker engine answers; without one, an image is built and run by root alone")
        need("buildah", "runc")

    def build(self) -> None:
        """Builds the image. What pip is told on this machine holds for the build, and is not in the image."""
        base = QUALIFIED_BASE
        if not works("buildah", "inspect", "--type", "image", base) and not works("buildah", "pull", "-q", base):
            self._make_base()
        host = [Path("/etc/ssl/certs"), Path("/etc/pip.conf")]
        volumes = [word for path in host if path.exists() for word in ("-v", f"{path}:{path}:ro")]
        fixed = ("--format", "docker", "--pull-never", "--isolation", "chroot", "--network", "host", "--timestamp", "0")
        run("buildah", "bud", *fixed, *volumes, *build_arguments(), "-f", str(DOCKERFILE), "-t", IMAGE, str(ROOT))

    def _make_base(self) -> None:
        """An image with the name of the base: Debian with Python where the official image has it, without bytecode."""
        need("mmdebstrap")
        print(f"{BASE} cannot be pulled: {STAND_IN}, about two minutes", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        suite = BASE.rpartition("-")[2]
        archive = CACHE / f"{suite}.tar"
        if not archive.exists():
            draft = archive.with_suffix(".part")
            wanted = "--include=python3,python3-venv,ca-certificates"
            run("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", wanted, suite, str(draft))
            draft.rename(archive)
        made = run("buildah", "from", "scratch")
        root = Path(run("buildah", "mount", made))
        run("tar", "-C", str(root), "-xf", str(archive), "--exclude=./dev/*", "--exclude=*.pyc")
        for name in ("python", "python3"):
            (root / "usr/local/bin").mkdir(parents=True, exist_ok=True)
            (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
        run("buildah", "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", "--comment", STAND_IN, made)
        run("buildah", "commit", "-q", "--rm", made, QUALIFIED_BASE)

    def size(self, image: str) -> int:
        """Bytes of all files."""
        with self._mounted(image) as root:
            return sum(path.lstat().st_size for path in Path(root).rglob("*") if not path.is_dir())

    def config(self) -> dict[str, Any]:
        """The image's own configuration."""
        found: dict[str, Any] = json.loads(run("buildah", "inspect", "--type", "image", IMAGE))["Docker"]["config"]
        return found

    @contextmanager
    def _mounted(self, image: str) -> Iterator[str]:
        made = run("buildah", "from", "--pull-never", image)
        try:
            yield run("buildah", "mount", made)
        finally:
            run("buildah", "rm", made)

    @contextmanager
    def started(self, name: str, arguments: Sequence[str], settings: Mapping[str, str]) -> Iterator[Container]:
        """A running container."""
        with self._mounted(IMAGE) as root, tempfile.TemporaryDirectory() as folder:
            run("runc", "spec", cwd=folder)
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(bundle(json.loads(file.read_text()), root, self.config(), arguments, settings)))
            own = f"plimsoll-{name}-{os.getpid()}"
            process = subprocess.Popen(["runc", "run", "-b", folder, own], stdin=subprocess.DEVNULL)
            try:
                yield Container(pid_of(own, process), process.wait, ("runc", "exec", own))
            finally:
                subprocess.call(["runc", "delete", "-f", own], stderr=subprocess.DEVNULL)
                process.wait()


def bundle(
    spec: dict[str, Any], root: str, config: Mapping[str, Any], arguments: Sequence[str], settings: Mapping[str, str]
) -> dict[str, Any]:
    """runc's own specification, confined as a pod of the restricted profile is."""
    user, _, group = config["User"].partition(":")
    process = spec["process"]
    process["args"] = [*config["Entrypoint"], *(arguments or config["Cmd"])]
    process["env"] = [*config["Env"], *(f"{name}={value}" for name, value in settings.items())]
    process["user"] = {"uid": int(user), "gid": int(group)}
    process["capabilities"] = {name: [] for name in process["capabilities"]}
    process["terminal"], process["noNewPrivileges"] = False, True
    process.pop("rlimits", None)  # they would need CAP_SYS_RESOURCE
    spec["root"] = {"path": root, "readonly": True}
    spec["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]})
    spec["linux"]["resources"] = {}
    spec["linux"]["namespaces"] = [one for one in spec["linux"]["namespaces"] if one["type"] != "network"]
    return spec


def pid_of(own: str, process: subprocess.Popen[bytes]) -> int:
    """The process id of a container's first process, once it runs."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and process.poll() is None:
        done = subprocess.run(["runc", "state", own], capture_output=True, text=True)
        if done.returncode == 0 and (state := json.loads(done.stdout))["status"] == "running":
            return int(state["pid"])
        time.sleep(0.02)
    raise SystemExit(f"the container did not start: {process.poll()}")


@dataclass(frozen=True, slots=True)
class Container:
    """A running container: the id of its first process, what waits for its exit code, what runs a command in it."""

    pid: int
    wait: Any
    inside: tuple[str, ...]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def status(self, name: str) -> list[str]:
        """A row of /proc/PID/status."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return text.partition(f"\n{name}:")[2].partition("\n")[0].split()


def build_arguments() -> list[str]:
    """The image's version, and the commit that it is of."""
    revision = run("git", "-C", str(ROOT), "rev-parse", "HEAD") if (ROOT / ".git").exists() else "unknown"
    return ["--build-arg", f"VERSION={VERSION}", "--build-arg", f"REVISION={revision}"]


def engine() -> Docker | Buildah:
    """What builds and runs images here."""
    return Docker() if works("docker", "info") else Buildah()


def build() -> int:
    """Builds the image and prints how large it is. Returns 1 if it is too large."""
    here, began = engine(), time.monotonic()
    print(f"building {IMAGE} on {BASE}", flush=True)
    here.build()
    own = (here.size(IMAGE) - here.size(BASE)) / 1e6
    print(f"{IMAGE}: {own:.0f} MB over its base of {here.size(BASE) / 1e6:.0f} MB, in {time.monotonic() - began:.0f} s")
    return 0 if own <= LARGEST_MB else 1


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def ask(port: int, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
    """The response to a request; its body is not read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    raw = None if body is None else json.dumps(body)
    sent = {name.replace("_", "-"): value for name, value in headers.items()} | {"content-type": "application/json"}
    connection.request("GET" if body is None else "POST", path, raw, sent)
    return connection.getresponse()


def wait_until_answers(port: int, path: str) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            if ask(port, path).status == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit(f"nothing answers at {path}")


class Report:
    """Prints what was found and remembers what was wrong."""

    def __init__(self) -> None:
        self.failed = False

    def __call__(self, good: bool, text: str) -> None:
        print(f"{'ok   ' if good else 'WRONG'} {text}", flush=True)
        self.failed = self.failed or not good


def test() -> int:
    """Runs the image and checks how it behaves. Returns 1 if anything is wrong."""
    here, told = engine(), Report()
    upstream, port, admin = free_port(), free_port(), free_port()
    settings = {
        "PLIMSOLL_HOST": "127.0.0.1",
        "PLIMSOLL_PORT": str(port),
        "PLIMSOLL_ADMIN_PORT": str(admin),
        "PLIMSOLL_UPSTREAM": f"http://127.0.0.1:{upstream}/v1",
    }
    with ExitStack() as stack:
        stack.enter_context(here.started("simulator", ["simulate", "--port", str(upstream)], {}))
        wait_until_answers(upstream, "/v1/models")
        began = time.monotonic()
        proxy = stack.enter_context(here.started("proxy", [], settings))
        wait_until_answers(admin, "/readyz")
        cpu, wall = proxy.cpu_seconds(), time.monotonic() - began
        print(f"     ready after {wall:.1f} s and {cpu:.2f} s of CPU", flush=True)
        lean(proxy, told)
        confined(proxy, told)
        answers(port, admin, told)
        healthy(here, proxy, told)
        drains(proxy, port, told)
        shares(here, settings, told)
    return 1 if told.failed else 0


def lean(proxy: Container, told: Report) -> None:
    """What a start costs follows from what it imports; seconds follow from the machine, too, and are only printed."""
    count, *packages = run(*proxy.inside, "python", "-c", IMPORTED).split()
    told(int(count) <= MOST_MODULES, f"imports {count} modules, {MOST_MODULES} at most")
    told({*packages} <= IMPORTS, f"imports no further packages: {' '.join(sorted({*packages} - IMPORTS)) or 'none'}")


def confined(proxy: Container, told: Report) -> None:
    told(proxy.status("Uid") == ["65532"] * 4, f"runs as uid {proxy.status('Uid')[0]}")
    sets = [proxy.status(name)[0] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    told(not any(int(one, 16) for one in sets) and proxy.status("NoNewPrivs") == ["1"], "has no capabilities")
    mounts = Path(f"/proc/{proxy.pid}/mountinfo").read_text().splitlines()
    root = next(line.split()[5] for line in mounts if line.split()[4] == "/")
    told("ro" in root.split(","), f"its root is mounted {root}")


def answers(port: int, admin: int, told: Report) -> None:
    response = ask(port, "/v1/chat/completions", HELLO)
    reply = json.loads(response.read())
    told(response.status == 200, f"answers {json.dumps(reply)[:200]}")
    plan = json.loads(ask(admin, "/inspect/v1/chat/completions", HELLO).read())
    tokens, billed = plan["tokens"], reply["usage"]["prompt_tokens"]
    good = tokens["quality"] == "exact" and tokens["prompt"] == billed
    told(good, f"counts {tokens['prompt']} tokens ({tokens['quality']}), the upstream {billed}")
    told(plan["window"] == 128_000, f"knows the window of gpt-4o: {plan['window']:,}")
    told(counted(admin), "serves metrics on the admin port")
    told(ask(port, "/metrics").status == 404, "serves none on the data port")


def healthy(here: Docker | Buildah, proxy: Container, told: Report) -> None:
    """The health check of the image, run in the container."""
    kind, *command = here.config()["Healthcheck"]["Test"]
    told(kind == "CMD" and works(*proxy.inside, *command), "its health check passes without a shell")


def drains(proxy: Container, port: int, told: Report) -> None:
    """SIGTERM while a stream is live: the stream ends as it would have, and the process with 0."""
    response = ask(port, "/v1/chat/completions", {**HELLO, "stream": True}, x_sim_chunk_delay="0.2")
    first = response.readline()
    os.kill(proxy.pid, signal.SIGTERM)
    rest = response.read()
    told(first.startswith(b"data: ") and rest.rstrip().endswith(b"[DONE]"), "a live stream ends whole after SIGTERM")
    code = proxy.wait()
    told(code == 0, f"ends with exit code {code}")


def shares(here: Docker | Buildah, settings: Mapping[str, str], told: Report) -> None:
    """Several workers meet in /tmp, the only folder that can be written."""
    port, admin = int(settings["PLIMSOLL_PORT"]), int(settings["PLIMSOLL_ADMIN_PORT"])
    with here.started("workers", [], {**settings, "PLIMSOLL_WORKERS": "2"}) as proxy:
        wait_until_answers(admin, "/readyz")
        ask(port, "/v1/chat/completions", HELLO).read()
        time.sleep(SHARED_AFTER_S)
        told(all(counted(admin) for _ in range(10)), "either of two workers shows what one of them counted")
        os.kill(proxy.pid, signal.SIGTERM)
        code = proxy.wait()
        told(code == 0, f"and they end with exit code {code}")


def counted(admin: int) -> bool:
    """Whether the metrics have a request."""
    return "plimsoll_requests_total{" in ask(admin, "/metrics").read().decode()


if __name__ == "__main__":
    raise SystemExit({"build": build, "test": test}[sys.argv[1]]())
