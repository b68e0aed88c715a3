"""Many questions in one conversation: how much of each prompt a provider's cache can reuse, and what evidence stays.

    python -m tests.bench.turns FOLDER [--budget TOKENS] [--questions N] [--pasted] [--limit N]

FOLDER holds `data/history_convs.jsonl.gz` and `data/history_questions.jsonl.gz`, which are no part of this project.
Each conversation is asked its questions one after the other, each with a short answer behind it, by both layouts. With
`--pasted` it is one text that the user pasted. Two processes are asked in turn whether they send the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.bench.fidelity import PORT, started

REPLY, MARGIN = 500, 100
LAYOUTS = (("stable", "default"), ("best", "chat"))  # and the ladders that have them for a model whose provider caches
ANSWER = "Thank you, that answers my question."


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def pasted(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as one text in a message of the user."""
    text = "\n".join(line(message) for message in chat)
    opening = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! How can I help?"}]
    told = {"role": "user", "content": f"Here is the transcript:\n\n{text}"}
    return [*opening, told, {"role": "assistant", "content": "Thanks, I have read it."}]


def line(message: dict[str, Any]) -> str:
    """A message as one line of a pasted text."""
    return str(message["content"]).replace("\n", " ").strip()


def sent(messages: list[dict[str, Any]], budget: int, ladder: str, port: int = PORT) -> list[dict[str, Any]]:
    """What would be sent of these messages."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"model": "gpt-4o", "max_tokens": REPLY, "messages": messages})
    headers = {"x-plimsoll-window": str(budget + REPLY + MARGIN), "x-plimsoll-ladder": ladder}
    connection.request("POST", "/inspect/v1/chat/completions", body, headers)
    found = json.loads(connection.getresponse().read())
    connection.close()
    return list(found["request"]["messages"])


def size(messages: list[dict[str, Any]]) -> int:
    """About what messages cost: characters stand for tokens, as only shares are told."""
    return sum(len(m["content"]) for m in messages)


def asked(
    chat: list[dict[str, Any]], questions: list[dict[str, Any]], budget: int, ladder: str, *, paste: bool
) -> tuple[float, float, float]:
    """Prefix share and recall of one conversation, and the share of requests in which two processes differ."""
    told, before = pasted(chat) if paste else list(chat), list[dict[str, Any]]()
    repeated = total = differ = 0
    recall = []
    for question in questions:
        told.append({"role": "user", "content": question["question"]})
        now = sent(told, budget, ladder)
        differ += now != sent(told, budget, ladder, PORT + 1)
        everything = "\n".join(m["content"] for m in now)
        wanted = [line(chat[i]) if paste else chat[i]["content"] for i in question["evidence"]]
        recall.append(sum(text in everything for text in wanted) / len(wanted))
        if before:
            same = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
            repeated, total = repeated + size(now[:same]), total + size(now)
        before = now
        told.append({"role": "assistant", "content": ANSWER})
    return repeated / max(1, total), sum(recall) / len(recall), differ / len(questions)


def main() -> int:
    """Exit code 2 where the data is missing."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--budget", type=int, default=4000)
    arguments.add_argument("--questions", type=int, default=20)
    arguments.add_argument("--pasted", action="store_true")
    arguments.add_argument("--limit", type=int, help="conversations")
    chosen = arguments.parse_args()
    data = chosen.folder / "data"
    if not (data / "history_convs.jsonl.gz").is_file():
        print(f"There is no data/history_convs.jsonl.gz in {chosen.folder}: nothing was measured.", file=sys.stderr)
        return 2
    chats = {chat["conv_id"]: chat["messages"] for chat in rows(data / "history_convs.jsonl.gz")}
    questions = defaultdict(list)
    for row in rows(data / "history_questions.jsonl.gz"):
        if row["category"] != "adversarial":
            questions[row["conv_id"]].append(row)
    cases = [(chats[name], found[: chosen.questions]) for name, found in questions.items()]
    cases = [case for case in cases if len(case[1]) == chosen.questions][: chosen.limit]
    proxies = [started(), started(PORT + 1)]
    try:
        print(f"{len(cases)} conversations, {chosen.questions} questions each, {chosen.budget} tokens")
        for layout, ladder in LAYOUTS:
            found = [asked(chat, some, chosen.budget, ladder, paste=chosen.pasted) for chat, some in cases]
            prefix, recall, differ = (sum(column) / len(column) for column in zip(*found, strict=True))
            print(f"{layout:7} prefix {prefix:.3f}  recall {recall:.3f}  processes differ {differ:.3f}", flush=True)
    finally:
        for proxy in proxies:
            proxy.terminate()
            proxy.wait(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
