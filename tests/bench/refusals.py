"""How many recorded "too long" answers, and look-alikes, are recognised as they were annotated, and healed.

Each is answered, once, to a chat of the size that it names (else one over the window that it names, else of `SOME`
tokens), sent through the proxy; healed is what the client then sees answered, by a smaller request that is within the
figures. Look-alikes must go to the client as they are.

python -m tests.bench.refusals --data DIR
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from proxy.config.rules import load_rules
from proxy.model.outcome import Refusal
from proxy.wire.refusals import Rules, recognise
from tests.e2e.services import KEY, PATH, plimsoll
from tests.recorder import Peer, Request, answer, recording
from tests.serving import ask, post

FIGURES = (("window", "limit"), ("prompt_tokens", "prompt"), ("completion_tokens", "completion"))
SOME = 20_000  # tokens of a prompt where nothing is named
OVER = 1.25  # how much larger than the window it is where only that is named
WORDS = "tide crane cargo pilot ballast harbour ledger rope".split()  # a token each, after a blank
FRAME = 4  # tokens around a message
REPLY = {"role": "assistant", "content": "ok"}


def faults(row: Mapping[str, Any], found: Refusal | None) -> list[str]:
    """What was told otherwise than annotated; a figure that is worked out from others may be missing."""
    if (found is not None) != row["is_overflow"]:
        return [f"is_overflow should be {row['is_overflow']}"]
    if found is None:
        return []
    told = {"limit": found.limit, "prompt": found.prompt, "completion": found.completion}
    if found.prompt is None and found.limit is not None and found.excess is not None:
        told["prompt"] = found.limit + found.excess
    return [
        f"{key} should be {row[key]}, is {told[mine]}" for key, mine in FIGURES if row[key] not in (None, told[mine])
    ]


def looked_at(rules: Rules, row: Mapping[str, Any]) -> Refusal | None:
    """A recorded body as it came."""
    return recognise(rules, row["status"], row["body"].encode())


def conversation(tokens: int) -> list[dict[str, str]]:
    """Messages of about so many tokens together: some twenty, and of a long one more, each unlike any other."""
    each = max(8, min(tokens // 20, 2_000))
    made: list[dict[str, str]] = []
    left = tokens
    while left > FRAME + 4 or not made:
        words = max(1, min(each, left) - FRAME - 4)
        text = f"Entry {len(made)}: " + " ".join(WORDS[(i + i // 8) % 8] for i in range(words))
        made.append({"role": "assistant" if len(made) % 2 else "user", "content": text})
        left -= words + FRAME + 4
    made[-1]["role"] = "user"
    return made


def size(body: Mapping[str, Any]) -> int:
    """The tokens of a conversation's messages, by its words; what our own texts in it have is about that."""
    return sum(FRAME + 4 + max(1, len(m["content"].split()) - 2) for m in body["messages"])


def asked(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A chat that such an answer may be of."""
    window, reply = row["window"], row["completion_tokens"]
    tokens = row["prompt_tokens"] or (SOME if window is None else int(window * OVER))
    return {
        "model": f"acme/harbour-{number}",
        **({"max_tokens": reply} if reply else {}),
        "messages": conversation(tokens),
    }


def answered(row: Mapping[str, Any]) -> bytes:
    """The answer as it comes over the wire; of a reason to finish the words are recorded, and a chat is made of it."""
    status, body = row["status"], row["body"].encode()
    if status == 200:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": ""},
            "finish_reason": row["body"].split('"')[1],
        }
        body = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
    return answer(body, b"%d %b" % (status, HTTPStatus(status).phrase.encode()))


def amiss(row: Mapping[str, Any], status: int, sent: Sequence[Mapping[str, Any]]) -> str:
    """Why what was done of a refusal is not right; empty where it is."""
    if not row["is_overflow"]:
        return "" if (status, len(sent)) == (row["status"], 1) else f"a look-alike: {len(sent)} requests, {status}"
    if status != 200 or len(sent) < 2:
        return f"{len(sent)} requests, the client got {status}"
    first, last = sent[0], sent[-1]
    prompt, reply = size(last), last.get("max_tokens") or 0
    if prompt + reply >= size(first) + (first.get("max_tokens") or 0):
        return "the second request is no smaller"
    if row["window"] is not None and prompt + reply > row["window"]:
        return f"the second request has {prompt} + {reply} tokens"
    return ""


async def healed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each row why it was not healed, or what was done of a look-alike; empty where all is well."""
    refusing: list[bytes] = []
    sent: list[dict[str, Any]] = []

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
            return
        sent.append(json.loads(request.body))
        await peer.send(refusing.pop() if refusing else answer(json.dumps({"choices": [{"message": REPLY}]}).encode()))

    told = []
    async with recording(script) as up, plimsoll(up.url) as proxy:
        for number, row in enumerate(rows):
            sent.clear()
            refusing[:] = [answered(row)]
            body = json.dumps(asked(row, number)).encode()
            seen = await ask(proxy.port, post(body, b"content-type: application/json", KEY, target=PATH))
            told.append(amiss(row, seen.status, sent))
            up.requests.clear()
    return told


def main() -> int:
    """Prints each row that was not told as annotated or not healed, and the sums; exit code 1 where there was one."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, default=Path("data"), help="the folder with refusals.jsonl")
    path = arguments.parse_args().data / "refusals.jsonl"
    if not path.exists():
        print(f"{path} is not there: name its folder with --data", file=sys.stderr)
        return 2
    rules = load_rules(None).refusals
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    wrong = [(row, otherwise) for row in rows if (otherwise := faults(row, looked_at(rules, row)))]
    for row, otherwise in wrong:
        print(f"{row['provider']}: {'; '.join(otherwise)}")
    why = asyncio.run(healed(rows))
    for row, told in zip(rows, why, strict=True):
        if told:
            print(f"{row['provider']}: {told}")
    overflows, alike = (
        [told for row, told in zip(rows, why, strict=True) if row["is_overflow"] is overflow]
        for overflow in (True, False)
    )
    print(f"{len(rows) - len(wrong)} of {len(rows)} as annotated, {overflows.count('')} of {len(overflows)} healed")
    print(f"{alike.count('')} of {len(alike)} look-alikes left alone")
    return 1 if wrong or any(why) else 0


if __name__ == "__main__":
    sys.exit(main())
