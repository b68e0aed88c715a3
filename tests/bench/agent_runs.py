"""Replays recorded agent runs through /inspect, converted to the form of another API; no model is asked.

    python tests/bench/agent_runs.py http://127.0.0.1:8080 --data DIR [--api responses] [--reasoning] [--limit N]

DIR holds trajectories.jsonl.gz: rows of `messages` in the form of Chat Completions, and their `tokens`. Every request
of a run that exceeds the budget is measured: the share of the prompt that repeats the one before, the share of the
identifiers of the next answer that are still there, prompts over the budget, and requests that the simulator refuses.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import re
import sys
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.simulator.responses import count_prompt
from proxy.simulator.responses_validation import checks
from proxy.simulator.validation import validate
from proxy.tokens.encodings import encoding

MODEL, ENCODING = "gpt-4o", "o200k_base"
REPLY, MARGIN = 500, 100  # tokens of the window that the prompt may not use
LONG = 1.5  # a run is replayed if it has so many times the budget
WORD = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./-]{6,80}")
SHAPED = re.compile(r"[0-9_./]|[a-z][A-Z]")  # what distinguishes an identifier from a word
SEALED = "gAAAA" + "x" * 1500  # reasoning, as a provider encrypts it

Message = Mapping[str, Any]
Item = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one line of figures."""
    options = _options(arguments)
    print("  ".join(f"{name}={value}" for name, value in measured(options).items()))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where the proxy listens")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder of the recorded runs")
    parser.add_argument("--api", default="responses", choices=["responses"], help="the form of the requests")
    parser.add_argument("--reasoning", action="store_true", help="put encrypted reasoning before every answer")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens of a prompt")
    parser.add_argument("--limit", type=int, default=None, help="measure so many runs only, spread evenly")
    return parser.parse_args(arguments)


def items(messages: Sequence[Message], reasoning: bool = False) -> list[Item]:
    """A conversation in the form of Chat Completions as the input items of a Responses request."""
    return [item for place, message in enumerate(messages) for item in _items(message, place, reasoning)]


def _items(message: Message, place: int, reasoning: bool) -> Iterator[Item]:
    role, text = message["role"], _text(message)
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": text}
        return
    if role != "assistant":
        yield {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        return
    if reasoning:
        yield {"type": "reasoning", "id": f"rs_{place}r_0", "summary": [], "encrypted_content": SEALED}
    if text:
        yield {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}
    for call in message.get("tool_calls") or []:
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content or [])


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The figures over all requests of all runs."""
    parts = urllib.parse.urlsplit(options.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
    found: Counter[str] = Counter()
    support: list[float] = []
    used: list[float] = []
    faults: Counter[str] = Counter()
    for run in _runs(options):
        before: list[Item] = []
        for context, answer in _requests(run["messages"], options):
            body = {"model": MODEL, "max_output_tokens": REPLY, "store": False, "input": context}
            sent = _inspected(connection, body, options.budget)
            tokens, kept = count_prompt(sent), sent["input"]
            error = validate(sent, checks())
            faults.update([] if error is None else [error.message[:60]])
            found += Counter(requests=1, over=int(tokens > options.budget), size=sum(map(_size, kept)) if before else 0)
            found["same"] += sum(_size(new) for new in _common(before, kept))
            used.append(tokens / options.budget)
            if wanted := _names(answer) & frozenset().union(*map(_names, context)):
                support.append(len(wanted & frozenset().union(*map(_names, kept))) / len(wanted))
            before = kept
    return {
        **{"requests": found["requests"], "over": found["over"], "invalid": sum(faults.values())},
        **{"prefix": _mean([found["same"] / max(1, found["size"])]), "support": _mean(support), "used": _mean(used)},
        **({"faults": dict(faults)} if faults else {}),
    }


def _runs(options: argparse.Namespace) -> list[dict[str, Any]]:
    with gzip.open(options.data / "trajectories.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [run for run in map(json.loads, lines) if run["tokens"] > LONG * options.budget]
    return found[:: max(1, len(found) // options.limit)][: options.limit] if options.limit else found


def _requests(messages: Sequence[Message], options: argparse.Namespace) -> Iterator[tuple[list[Item], Item]]:
    """The input of every request of a run that is over the budget, and its answer as one item."""
    for turn, message in enumerate(messages):
        if message["role"] != "assistant" or turn < 2:
            continue
        context = items(messages[:turn], options.reasoning)
        if sum(map(_size, context)) > options.budget:
            yield context, {"answer": items([message])}


def _inspected(connection: http.client.HTTPConnection, body: Mapping[str, Any], budget: int) -> dict[str, Any]:
    headers = {"content-type": "application/json", "x-plimsoll-window": str(budget + REPLY + MARGIN)}
    connection.request("POST", "/inspect/v1/responses", json.dumps(body).encode(), headers)
    answer = connection.getresponse()
    plan = json.loads(answer.read())
    if answer.status != 200:
        raise SystemExit(f"/inspect answered {answer.status}: {plan}")
    found: dict[str, Any] = plan["request"]
    return found


def _common(before: Sequence[Item], after: Sequence[Item]) -> Iterator[Item]:
    for old, new in zip(before, after, strict=False):
        if old != new:
            return
        yield new


def _size(item: Item) -> int:
    """Tokens of an item, about."""
    return _tokens(json.dumps({key: value for key, value in item.items() if key != "encrypted_content"}))


@lru_cache(maxsize=100_000)
def _tokens(text: str) -> int:
    return encoding(ENCODING).count(text)


def _names(item: Item) -> frozenset[str]:
    """The identifiers in an item."""
    return _identifiers(json.dumps({key: value for key, value in item.items() if key != "encrypted_content"}))


@lru_cache(maxsize=60_000)
def _identifiers(encoded: str) -> frozenset[str]:
    text = encoded.replace("\\\\n", "\n").replace("\\n", "\n").replace('\\"', '"').replace("\\", "")
    words = (word.strip("./-_") for word in WORD.findall(text))
    keys = ("arguments", "call_id", "function_call", "function_call_output", "input_text", "output_text")
    return frozenset(w for w in words if len(w) >= 7 and SHAPED.search(w) and w not in keys)


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


if __name__ == "__main__":
    raise SystemExit(main())
