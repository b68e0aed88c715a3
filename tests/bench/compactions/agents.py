"""The agents: how each is run without a terminal, how it is asked for a turn, and how it is made to compact."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 180
MODEL = "house-1"  # a model that nobody knows: neither the agent nor the proxy has its window


@dataclass(frozen=True, slots=True)
class Run:
    """An agent in a home of its own, before an upstream. `folder`: where node has installed it."""

    agent: Agent
    folder: Path
    home: Path
    url: str

    @property
    def work(self) -> Path:
        """Where it works."""
        return self.home / "work"

    def turn(self, prompt: str, first: bool = False) -> bool:
        """Whether a turn succeeded."""
        return self.finished(*self.agent.turn(self, prompt, first)).returncode == 0

    def compact(self) -> bool:
        """Whether it says that it compacted."""
        return self.agent.compact(self)

    def finished(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What it did with these arguments."""
        return subprocess.run(
            [str(self.executable), *arguments],
            cwd=self.work,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """It as a server, until the block ends or the time is up."""
        server = subprocess.Popen(
            [str(self.executable), *arguments],
            cwd=self.work,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        watch = threading.Timer(TIMEOUT_S, server.kill)
        watch.start()
        try:
            yield server
        finally:
            watch.cancel()
            server.terminate()
            server.wait(30)

    @property
    def executable(self) -> Path:
        """Its command."""
        return self.folder / "node_modules/.bin" / self.agent.executable

    def environment(self) -> dict[str, str]:
        """What it runs with: a home of its own, and the settings that name the upstream."""
        path = f"{self.folder / 'node_modules/.bin'}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "TERM": "dumb", **self.agent.prepare(self)}


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent. `prepare` writes its settings and returns its environment; `turn` gives the arguments of a turn;
    `compact` makes it compact what it said so far, and returns whether it did."""

    name: str
    executable: str
    prepare: Callable[[Run], Mapping[str, str]]
    turn: Callable[[Run, str, bool], list[str]]
    compact: Callable[[Run], bool]


def _newest(folder: Path, pattern: str) -> str:
    """The name of the file that was written last, without its ending."""
    return max(folder.rglob(pattern), key=lambda path: path.stat().st_mtime).stem


def _claude(run: Run) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": run.url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def _claude_turn(run: Run, prompt: str, first: bool) -> list[str]:
    session = [] if first else ["--resume", _newest(run.home / ".claude/projects", "*.jsonl")]
    return ["-p", prompt, *session, "--dangerously-skip-permissions"]


def _claude_compacts(run: Run) -> bool:
    done = run.finished(*_claude_turn(run, "/compact", False))
    return done.returncode == 0 and "rror" not in done.stdout


def _codex(run: Run) -> Mapping[str, str]:
    folder = run.home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "house"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        f'[model_providers.house]\nname = "house"\nbase_url = "{run.url}/v1"\nenv_key = "HOUSE_KEY"\n'
        'wire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    )
    return {"HOUSE_KEY": "none", "CODEX_HOME": str(folder)}


def _codex_turn(run: Run, prompt: str, first: bool) -> list[str]:
    return ["exec", "--skip-git-repo-check", *([] if first else ["resume", "--last"]), prompt]


def _codex_compacts(run: Run) -> bool:
    """By its app server, which its own interfaces use: JSON-RPC, a line each."""
    thread = _newest(run.home / ".codex/sessions", "rollout-*.jsonl")[-36:]
    with run.started("app-server") as server:
        assert server.stdin is not None and server.stdout is not None
        asked = {
            "initialize": {"clientInfo": {"name": "bench", "version": "1"}},
            "thread/resume": {"threadId": thread},
            "thread/compact/start": {"threadId": thread},
        }
        for ident, (method, params) in enumerate(asked.items(), 1):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}) + "\n")
            server.stdin.flush()
            for line in server.stdout:
                if json.loads(line).get("id") == ident:
                    break
        for line in server.stdout:
            method = json.loads(line).get("method")
            if method == "thread/compacted" or (method == "item/completed" and '"contextCompaction"' in line):
                return True
            if method in ("error", "turn/completed"):
                return False
    return False


def _opencode(run: Run) -> Mapping[str, str]:
    model = {"name": MODEL, "limit": {"context": 200_000, "output": 4_096}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{run.url}/v1", "apiKey": "none"}}
    config = {
        "model": f"house/{MODEL}",
        "small_model": f"house/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
        "provider": {"house": {**provider, "models": {MODEL: model}}},
    }
    (run.work / "opencode.json").write_text(json.dumps(config))
    off = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in off}


def _opencode_turn(run: Run, prompt: str, first: bool) -> list[str]:
    return ["run", *([] if first else ["--continue"]), prompt]


def _opencode_compacts(run: Run) -> bool:
    """By its server, as its terminal asks it."""
    with run.started("serve", "--port", "0") as server:
        assert server.stdout is not None
        url = next("http://" + line.partition("http://")[2].strip() for line in server.stdout if "http://" in line)
        with urllib.request.urlopen(f"{url}/session?directory={run.work}", timeout=TIMEOUT_S) as answer:
            sessions = json.load(answer)
        session = max(sessions, key=lambda one: one["time"]["updated"])["id"]
        body = json.dumps({"providerID": "house", "modelID": MODEL}).encode()
        where = f"{url}/session/{session}/summarize?directory={run.work}"
        request = urllib.request.Request(where, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200 and answer.read() == b"true")


def _qwen(run: Run) -> Mapping[str, str]:
    (run.home / ".qwen").mkdir(exist_ok=True)
    settings = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
    (run.home / ".qwen/settings.json").write_text(json.dumps(settings))
    return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{run.url}/v1", "OPENAI_MODEL": MODEL}


def _qwen_turn(run: Run, prompt: str, first: bool) -> list[str]:
    return ["--auth-type", "openai", "-y", *([] if first else ["--continue"]), "-p", prompt]


def _qwen_compacts(run: Run) -> bool:
    return "compressed" in run.finished(*_qwen_turn(run, "/compress", False)).stdout


AGENTS = (
    Agent("Claude Code", "claude", _claude, _claude_turn, _claude_compacts),
    Agent("Codex", "codex", _codex, _codex_turn, _codex_compacts),
    Agent("opencode", "opencode", _opencode, _opencode_turn, _opencode_compacts),
    Agent("Qwen Code", "qwen", _qwen, _qwen_turn, _qwen_compacts),
)
