"""What the documents promise, as a client of the running proxy meets it (U5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.name for path in (ROOT / "deploy" / "docs").glob("*.md"))
DOCUMENTS = ("README.md", "rules/README.md", "proxy/README.md", *(f"deploy/docs/{name}" for name in PAGES))
# What was written there and was not true as written.
UNTRUE = ("No request fails for its length", "the least that helps", "last question always stay", "every header,")
WORDS = "tide crane cargo pilot ballast harbour ledger rope "


@pytest.mark.parametrize("sentence", UNTRUE)
def test_U5_what_was_not_true_is_not_said_any_more(sentence: str) -> None:
    for document in DOCUMENTS:
        assert sentence not in " ".join((ROOT / document).read_text("utf-8").split())


def talk(first: str, last: str, turns: int = 250) -> list[dict[str, Any]]:
    """A conversation of some 12,000 tokens, which gpt-4 does not hold, with these questions at its ends."""
    between = [
        {"role": "assistant" if i % 2 == 0 else "user", "content": f"Entry {i}: {WORDS * 5}"} for i in range(turns + 1)
    ]
    rule = {"role": "system", "content": "Rule: answer in one word."}
    return [rule, {"role": "user", "content": first}, *between, {"role": "user", "content": last}]


def sent(place: Place, messages: list[dict[str, Any]], **headers: str) -> list[dict[str, Any]]:
    """The messages that the upstream got of these, which are answered."""
    body = {"model": "gpt-4", "max_tokens": 500, "messages": messages}
    assert place.ask(body, headers=headers).status == 200
    got = [request for request in place.there.requests if request.target == CHAT.encode()][-1]
    assert len(got.body) < len(json.dumps(body))
    found: list[dict[str, Any]] = json.loads(got.body)["messages"]
    return found


def test_U5_what_is_never_dropped_is_never_dropped(place: Place) -> None:
    """Instructions, the first user message, the last one and what is pinned: what is short stays as it is, and of
    what alone is more than fits the ends stay."""
    messages = talk("What is in the ledger?", "And who wrote it?")
    got = sent(place, messages, **{"x-plimsoll-pin": "77"})
    assert len(got) < len(messages)
    assert [m for m in got if m in (messages[0], messages[1], messages[77], messages[-1])] == [
        messages[0],
        messages[1],
        messages[77],
        messages[-1],
    ]
    long = talk(f"The first. {WORDS * 1_000} What was first?", f"The last. {WORDS * 1_000} What was last?", 20)
    got = sent(place, long)
    assert got[0] == long[0]
    assert any(m["content"].startswith("The first. ") and m["content"].endswith("was first?") for m in got)
    assert got[-1]["content"].startswith("The last. ") and got[-1]["content"].endswith("was last?")


def test_U5_what_is_too_long_is_made_to_fit_wherever_anything_may_be_cut(place: Place) -> None:
    """A single message of any role that gives way; what nothing can make fit gets a 400 that names it."""
    for messages in (
        [{"role": "user", "content": WORDS * 3_000}],
        [{"role": "user", "content": [{"type": "text", "text": WORDS * 3_000}]}],
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": WORDS * 3_000}] * 3
        + [{"role": "user", "content": "So?"}],
        [{"role": "system", "content": WORDS * 3_000}, {"role": "user", "content": "So?"}],
    ):
        assert sent(place, messages)
    before = len(place.there.requests)
    schema = {"type": "object", "properties": {"choice": {"type": "string", "enum": [WORDS * 3_000]}}}
    tools = [{"type": "function", "function": {"name": "t", "parameters": schema}}]
    told = place.ask({"model": "gpt-4", "messages": [{"role": "user", "content": "Hi"}], "tools": tools})
    assert told.status == 400 and told.json["error"]["code"] == "context_length_exceeded"
    assert len(place.there.requests) == before
