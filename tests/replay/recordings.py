"""Recorded requests for the tests of a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proxy.config.settings import Settings, read_settings
from proxy.model.outcome import Usage
from proxy.replay.engine import Options, Result, results
from proxy.replay.order import Placed
from proxy.replay.plan_worker import Column
from proxy.replay.recorded import Recorded
from tests.makers import assistant, user, words


def settings(**environment: str) -> Settings:
    """Settings of which no upstream follows."""
    return read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment})


def chat(turns: int, model: str = "gpt-4", stem: str = "t", **fields: Any) -> bytes:
    """A chat of so many turns, about 400 tokens each. All begin alike that have the same `stem`."""
    messages = [made(words(50, f"{stem}{i}x")) for i in range(turns) for made in (user, assistant)]
    return json.dumps({"model": model, "messages": [*messages, user("And now?")], **fields}).encode()


def placed(*bodies: bytes | Recorded) -> list[Placed]:
    """Requests, a second after one another."""
    made = [one if isinstance(one, Recorded) else Recorded(one) for one in bodies]
    return [Placed(float(i), 0, i, i + 1, one) for i, one in enumerate(made)]


def run(*bodies: bytes | Recorded, columns: tuple[Column, ...] = (Column(),), **options: Any) -> list[Result]:
    """The results of requests, planned in this process."""
    return list(results(placed(*bodies), Options(settings(), columns, 0, **options)))


def logged(path: Path, *bodies: bytes, app: str = "search", usage: Usage | None = None) -> Path:
    """Writes a log of LiteLLM with these bodies, ten seconds apart."""
    lines = []
    for number, body in enumerate(bodies):
        fields = json.loads(body)
        counts = {} if usage is None else {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        line = {
            "call_type": "completion",
            "model": fields.pop("model"),
            "messages": fields.pop("messages"),
            "model_parameters": fields,
            "startTime": 1_763_000_000 + 10 * number,
            "status": "success",
            "metadata": {"user_api_key_team_alias": app},
            **counts,
        }
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines))
    return path
