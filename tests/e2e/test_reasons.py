"""Why what is claimed of a chat stays is told by `/inspect`, by the page and in the log, in every layout."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.app import create_admin
from proxy.fit.claims.reasons import KEPT, QUOTED
from proxy.observe.log import json_line, text_line
from tests.e2e.services import KEY, PATH, body, plimsoll
from tests.recorder import recording
from tests.serving import ask, get, post, run, serving

SAID = {
    6: "From now on, answer in two short sentences.",
    10: "The meeting about kites is on June 4.",
    44: "It moved to June 18 instead.",
}
REASONS = {6: "order", 44: "changes what was said"}


def chat() -> list[dict[str, str]]:
    """A long chat that has an order, a value and its change, and that asks for the value."""
    role = ("user", "assistant")
    told = [
        f"People came by on walk {i} and liked the old bridge, the bread and the boats of harbour {i}."
        for i in range(90)
    ]
    told = [SAID.get(i, text) for i, text in enumerate(told)]
    return [
        *({"role": role[i % 2], "content": text} for i, text in enumerate(told)),
        {"role": "user", "content": "When is the meeting about kites?"},
    ]


def whys(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Of each claimed message why it stays."""
    found = {row["index"]: row["why"] for row in rows if row["index"] is not None}
    return {index: found[index].removeprefix(KEPT).removeprefix(QUOTED) for index in REASONS}


@pytest.mark.parametrize("ladder", [b"default", b"chat"])
def test_the_reasons_of_claims_of_a_chat_are_told_everywhere(ladder: bytes) -> None:
    sent = body(chat(), "gpt-4o", max_tokens=50)
    asked = (b"content-type: application/json", KEY, b"x-plimsoll-window: 900", b"x-plimsoll-ladder: " + ladder)

    async def check() -> None:
        async with (
            recording() as up,
            plimsoll(up.url, PLIMSOLL_ADMIN_PORT="1") as proxy,
            serving(create_admin(proxy.services)) as admin,
        ):
            port = admin.ports[0]
            inspected = json.loads((await ask(port, post(sent, *asked, target=b"/inspect" + PATH))).body)
            assert inspected["fits"] and whys(inspected["messages"]["detail"]) == REASONS
            assert (await proxy.chat(sent, *asked[2:])).status == 200
            outcome = await proxy.told()
            assert dict(outcome.kept) == dict.fromkeys(REASONS.values(), 1)
            line = "changes what was said 1, order 1"
            assert json.loads(json_line(outcome, 1.0))["kept"] == line and f" kept=[{line}] " in text_line(outcome, 1.0)
            entries = json.loads((await ask(port, get(b"/api/requests"))).body)["requests"]
            shown = json.loads((await ask(port, get(b"/api/requests/" + entries[0]["id"].encode()))).body)
            assert whys(shown["rows"]) == REASONS

    run(check())
