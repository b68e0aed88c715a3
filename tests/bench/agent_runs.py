"""Replays recorded agent runs through /inspect, converted to the form of another API; no model is asked.

    python tests/bench/agent_runs.py http://127.0.0.1:8080 --data DIR [--api responses|messages|ollama] [--model NAME]

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.simulator.anthropic_messages import validation
from proxy.simulator.anthropic_messages.counting import count_prompt as count_messages
from proxy.simulator.anthropic_messages.request import Request
from proxy.simulator.check import ApiError, validate
from proxy.simulator.ollama.answer import check
from proxy.simulator.ollama.answer import count_prompt as count_ollama
from proxy.simulator.ollama_server import OllamaError
from proxy.simulator.openai_responses.counting import count_prompt as count_responses
from proxy.simulator.openai_responses.validation import checks
from proxy.tokens.encodings import encoding
from tests.bench import messages_form
from tests.bench.arguments import existing

ENCODING = "o200k_base"
REPLY, MARGIN = 500, 100  # tokens of the window that the prompt may not use
LONG = 1.5  # a run is replayed if it has so many times the budget
WORD = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./-]{6,80}")
SHAPED = re.compile(r"[0-9_./]|[a-z][A-Z]")  # what distinguishes an identifier from a word
SEALED = "gAAAA" + "x" * 1500  # reasoning, as a provider encrypts it

Message = Mapping[str, Any]
Item = dict[str, Any]
Body = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """The form of one API: its path, a model, the request for a conversation, the
    messages in a request, its tokens, and what is wrong with it (empty: nothing)."""

    path: str
    model: str
    body: Callable[[Sequence[Message], str, bool], Body]
    listed: Callable[[Body], list[Item]]
    count: Callable[[Body], int]
    fault: Callable[[Body], str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one line of figures."""
    options = _options(arguments)
    print("  ".join(f"{name}={value}" for name, value in measured(options).items()))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where the proxy listens")
    parser.add_argument("--data", type=existing, default="data", help="the folder of the recorded runs")
    parser.add_argument("--api", default="responses", choices=sorted(FORMS), help="the form of the requests")
    parser.add_argument("--model", help="the model that is asked (default: one of the API)")
    parser.add_argument("--reasoning", action="store_true", help="Responses: put encrypted reasoning before answers")
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


def _responses(messages: Sequence[Message], model: str, reasoning: bool) -> Body:
    return {"model": model, "max_output_tokens": REPLY, "store": False, "input": items(messages, reasoning)}


def _messages(messages: Sequence[Message], model: str, reasoning: bool) -> Body:
    names = {call["function"]["name"] for m in messages for call in m.get("tool_calls") or []}
    return messages_form.request(messages, model, REPLY, [{"function": {"name": name}} for name in sorted(names)])


def _ollama(messages: Sequence[Message], model: str, reasoning: bool) -> Body:
    names = {call["id"]: call["function"]["name"] for m in messages for call in m.get("tool_calls") or []}
    told = [_ollama_message(message, names) for message in messages]
    return {"model": model, "messages": told, "options": {"num_predict": REPLY}}


def _ollama_message(message: Message, names: Mapping[str, str]) -> Item:
    """A message with its calls' arguments as objects and without ids; a result has the name of its tool."""
    told: Item = {"role": message["role"], "content": _text(message)}
    if message["role"] == "tool":
        told["tool_name"] = names.get(message["tool_call_id"], "")
    if calls := message.get("tool_calls"):
        functions = [call["function"] for call in calls]
        arguments = [messages_form.arguments(function["arguments"]) for function in functions]
        pairs = zip(functions, arguments, strict=True)
        told["tool_calls"] = [{"function": {"name": f["name"], "arguments": found}} for f, found in pairs]
    return told


def _fault(error: ApiError | None) -> str:
    return "" if error is None else error.message


def _messages_fault(body: Body) -> str:
    return _fault(validation.validate(Request(body)))


def _ollama_fault(body: Body) -> str:
    try:
        check(body)
    except OllamaError as error:
        return error.message
    return ""


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The figures over all requests of all runs."""
    form, parts = FORMS[options.api], urllib.parse.urlsplit(options.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
    found: Counter[str] = Counter()
    support: list[float] = []
    used: list[float] = []
    faults: Counter[str] = Counter()
    for run in _runs(options):
        before: list[Item] = []
        for context, answer in _requests(run["messages"], options):
            sent = _inspected(connection, form.path, context, options.budget)
            tokens, kept, fault = form.count(sent), form.listed(sent), form.fault(sent)
            faults.update([fault[:60]] if fault else [])
            found += Counter(requests=1, over=int(tokens > options.budget), size=sum(map(_size, kept)) if before else 0)
            found["same"] += sum(_size(new) for new in _common(before, kept))
            used.append(tokens / options.budget)
            if wanted := _names(answer) & frozenset().union(*map(_names, form.listed(context))):
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


def _requests(messages: Sequence[Message], options: argparse.Namespace) -> Iterator[tuple[Body, Item]]:
    """Every request of a run that is over the budget, and its answer as one item."""
    form = FORMS[options.api]
    model = options.model or form.model
    tools = form.body(messages, model, options.reasoning).get("tools")  # a client sends all of them with every request
    for turn, message in enumerate(messages):
        if message["role"] != "assistant" or turn < 2:
            continue
        body = form.body(messages[:turn], model, options.reasoning) | ({"tools": tools} if tools else {})
        if sum(map(_size, form.listed(body))) > options.budget:
            yield body, {"answer": form.listed(form.body([message], model, options.reasoning))}


def _inspected(connection: http.client.HTTPConnection, path: str, body: Body, budget: int) -> Body:
    headers = {"content-type": "application/json", "x-plimsoll-window": str(budget + REPLY + MARGIN)}
    try:
        connection.request("POST", "/inspect" + path, json.dumps(body).encode(), headers)
    except OSError as error:
        raise SystemExit(f"no proxy answers at {connection.host}:{connection.port}: {error.strerror}") from None
    answer = connection.getresponse()
    plan = json.loads(answer.read())
    if answer.status != 200:
        raise SystemExit(f"/inspect answered {answer.status}: {plan}")
    found: Body = plan["request"]
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


FORMS = {
    "responses": Form(
        "/v1/responses",
        "gpt-4o",
        _responses,
        lambda body: body["input"],
        count_responses,
        lambda body: _fault(validate(body, checks())),
    ),
    "messages": Form(
        "/v1/messages",
        "claude-sonnet-4-5",
        _messages,
        lambda body: [{"system": body.get("system", "")}, *body["messages"]],
        lambda body: count_messages(json.dumps(body).encode()),
        _messages_fault,
    ),
    "ollama": Form(
        "/api/chat",
        "gpt-oss:20b",
        _ollama,
        lambda body: body["messages"],
        lambda body: count_ollama(json.dumps(body).encode()),
        _ollama_fault,
    ),
}

if __name__ == "__main__":
    raise SystemExit(main())
