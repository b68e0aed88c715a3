"""Lorebooks and pins through a proxy, over real sockets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.e2e.services import body, error, ours, plimsoll, talk
from tests.recorder import recording
from tests.serving import run

ENTRY = {"key": ["dragon"], "keysecondary": [], "content": "Smoulder guards the pass.", "selective": True}
OTHER = {"key": ["ferry"], "content": "The ferry leaves at nine."}
ASKING = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "I look for the Dragon."}]


def messages_of(sent: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sent)["messages"]
    return found


def test_a_lorebook_that_the_request_names_is_quoted_before_its_last_message(tmp_path: Path) -> None:
    (tmp_path / "lorebooks").mkdir()
    (tmp_path / "lorebooks" / "eldoria.json").write_text(json.dumps({"entries": {"0": ENTRY, "1": OTHER}}))
    sent = body(ASKING, "gpt-4o", max_tokens=50)

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_RULES=str(tmp_path)) as proxy:
            reply = await proxy.chat(sent, b"x-plimsoll-lorebook: eldoria", b"x-plimsoll-ladder: rag")
            first, quoted, last = messages_of(up.requests[0].body)
            assert (reply.status, first, last) == (200, *ASKING)
            assert quoted["role"] == "user" and quoted["content"].endswith(":]\nSmoulder guards the pass.")
            assert ours(reply)["steps"].startswith("recall;+")
            assert b"x-plimsoll-lorebook" not in up.requests[0].head.lower()
            assert [note.step for note in (await proxy.told()).notes] == ["recall"]

            await proxy.chat(sent, b"x-plimsoll-ladder: rag")
            assert up.requests[1].body == sent

            wrong = await proxy.chat(sent, b"x-plimsoll-lorebook: nowhere", b"x-plimsoll-ladder: rag")
            assert (wrong.status, error(wrong)["param"]) == (400, "x-plimsoll-lorebook")

    run(check())


def test_a_message_pins_itself_and_its_key_is_not_sent() -> None:
    said = [{**m, "plimsoll": {"pin": True}} if i == 9 else m for i, m in enumerate(talk(400))]

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            await proxy.chat(body(said))
            assert talk(400)[9] in messages_of(up.requests[0].body)
            assert talk(400)[10] not in messages_of(up.requests[0].body)

            short = body([{**talk(2)[0], "plimsoll": {"pin": True}}, *talk(2)[1:]])
            await proxy.chat(gzip.compress(short), b"content-encoding: gzip")
            assert messages_of(up.requests[1].body) == talk(2)
            assert up.requests[1].header(b"content-encoding") == []
            assert up.requests[1].header(b"content-length") == [b"%d" % len(up.requests[1].body)]

    run(check())
