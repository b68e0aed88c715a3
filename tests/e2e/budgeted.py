"""A proxy with a budget for tests: rules, keys, and an upstream whose usage a test decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.request.callers import hash_of
from tests.hostile.harness import Answered, Running, ok, running, upstream
from tests.recorder import Peer, Recorder, Request

SECRET = "a secret of the tests"
TEAM, OTHER, FREE = (f"sk-{name}-0123456789" for name in ("team", "other", "free"))
HASHES = {key: hash_of(SECRET.encode(), key.encode()) for key in (TEAM, OTHER, FREE)}
TALK = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "some words of it " * 40} for n in range(61)
]  # about 10,000 tokens
SHORT = [{"role": "user", "content": "What is the tide? " + "word " * 100}]

Reported = Callable[[Mapping[str, Any]], tuple[int, int, int]]  # of a body: prompt, cached, completion


def tokens(body: Mapping[str, Any]) -> tuple[int, int, int]:
    """What an upstream reports that counts words, roughly as an encoding does."""
    words = sum(len(str(m["content"]).split()) + 4 for m in body["messages"])
    return words, 0, 10


def rules(**budget: Any) -> str:
    """A callers.toml with one budget for two callers, and one caller without. Its period does not end at midnight."""
    given = {"name": "small", "per": "366d", "tokens": 10_000, "over": "fit", "window": 2_000} | budget
    rows = "\n".join(f"{name} = {json.dumps(value)}" for name, value in given.items() if value is not None)
    callers = "\n".join(
        f'[[caller]]\nname = "{name}"\nmatch = "{HASHES[key]}"\n{budgeted}'
        for name, key, budgeted in (
            ("team", TEAM, 'budget = "small"'),
            ("others", OTHER, 'budget = "small"'),
            ("free", FREE, ""),
        )
    )
    return f"{callers}\n[[budget]]\n{rows}\n"


@dataclass(slots=True)
class Budgeted:
    """A proxy whose callers have a budget, and its upstream."""

    proxy: Running
    there: Recorder

    def ask(self, key: str = TEAM, messages: Any = SHORT, headers: Mapping[str, str] = {}, **fields: Any) -> Answered:
        """One chat."""
        body = {"model": "gpt-4o", "messages": messages, "max_tokens": 50, **fields}
        return self.proxy.ask(body, key=key, headers=headers)

    def sent(self) -> list[Any]:
        """The bodies of the chats that reached the upstream."""
        return [json.loads(r.body) for r in self.there.requests if r.method == b"POST" and r.body]


def reports(reported: Reported) -> Any:
    """An upstream that reports this usage."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method != b"POST":
            await peer.send(ok())
            return
        prompt, cached, completion = reported(json.loads(request.body))
        await peer.send(with_usage(prompt, cached, completion))

    return script


def with_usage(prompt: int, cached: int, completion: int) -> bytes:
    """An answer with a usage."""
    _head, _, raw = ok().partition(b"\r\n\r\n")
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    body = json.dumps({**json.loads(raw), "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def settings(folder: Path, text: str) -> dict[str, Any]:
    """The settings of a proxy with these rules by caller."""
    (folder / "callers.toml").write_text(text)
    return {"PLIMSOLL_RULES": str(folder), "PLIMSOLL_SECRET": SECRET}


@contextmanager
def budgeted(folder: Path, text: str, reported: Reported = tokens, workers: int = 1, **more: Any) -> Iterator[Budgeted]:
    """A running proxy with these rules."""
    with upstream(reports(reported)) as there:
        with running(there.url, workers=workers, admin=True, **settings(folder, text), **more) as proxy:
            yield Budgeted(proxy, there)
