"""The list of the wire's dangers, 34 to 41: bodies that are broken, huge, strange or made to cost."""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from proxy.simulator.check import validate
from proxy.simulator.openai_chat.validation import checks_for
from tests.e2e.services import sentence, talk
from tests.e2e.test_bad_input import NOT_UNDERSTOOD, ODD
from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, HELLO
from tests.hostile.raw import post, tried
from tests.makers import tool_round

MiB = 1 << 20
CHECKS = checks_for("openai-old")


def sent(place: Place) -> list[bytes]:
    """The bodies of the chats that the upstream got."""
    return [r.body for r in place.there.requests if r.method == b"POST"]


def asking(content: Any, **fields: Any) -> bytes:
    """A chat with one message."""
    return json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": content}], **fields}).encode()


def test_D34_broken_and_odd_bodies_go_on_unchanged(place: Place) -> None:
    for bad in (*NOT_UNDERSTOOD.values(), *ODD.values()):
        place.scripted()
        got = tried(place.proxy.port, post(bad, b"content-type: application/json"))
        assert got is not None and got.status == 200, bad[:100]
        assert sent(place) == [bad]


TEXTS = {
    "blanks": " " * MiB,
    "one letter": "a" * MiB,
    "no letters": "\u3000" * (MiB // 3),
    "base64": base64.b64encode(random.Random(1).randbytes(MiB * 3 // 4)).decode(),
    "special tokens": "<|endoftext|><|im_start|>" * (MiB // 25),
    "line ends": "\n" * MiB,
    "emoji": "🚢" * (MiB // 4),
}


@pytest.mark.parametrize("name", TEXTS)
def test_D35_a_megabyte_of_anything_is_counted_in_time(place: Place, name: str) -> None:
    place.ask(HELLO)
    place.scripted()
    body = asking(TEXTS[name], max_tokens=16)
    with place.proxy.working(3):
        got = place.ask(body)
        assert got.status == 200 or got.json["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_D36_a_bomb_does_not_go_off(place: Place, coding: str) -> None:
    place.ask(HELLO)
    place.scripted()
    pack: Callable[[bytes], bytes] = gzip.compress if coding == "gzip" else zlib.compress
    inner = b'{"model":"gpt-4o","messages":[{"role":"user","content":"' + b" " * (200 * MiB) + b'"}]}'
    bombs = [pack(inner), pack(pack(inner))]
    del inner
    before = place.proxy.settled_mb()
    with place.proxy.working(5):
        for bomb in bombs:
            got = place.ask(bomb, headers={"content-encoding": coding})
            assert got.status in (200, 413)
            assert sent(place) == ([bomb] if got.status == 200 else [])
            place.scripted()
    assert place.proxy.memory_mb(peak=True) - before < 4 * 64 + 16, "the largest body that may be, four times"


def test_D37_what_nobody_knows_stays_as_it_is(place: Place) -> None:
    for body in (
        asking([{"type": "hologram", "data": {"x": [1, None]}}, {"type": "text", "text": "hi", "cache_control": {}}]),
        asking("hi", tool_choice={"type": "allowed_tools"}, future={"a": [1.0, 1e2, -0.0]}, n=1),
        json.dumps({"model": "gpt-4o", "messages": [{"role": "captain", "content": "x", "mood": 1}]}).encode(),
        b'{ "model" : "gpt-4o" ,\n"messages":[ {"role":"user","content":"\\u0068i","x":1.10} ] , "x":1, "x":2 }',
        json.dumps({"model": "gpt-4o", "messages": [{"role": "assistant", "audio": {"id": "a"}}]}).encode(),
    ):
        place.scripted()
        assert place.ask(body).status == 200
        assert sent(place) == [body]


def conversation(chance: random.Random) -> list[dict[str, Any]]:
    """A valid conversation by chance: turns, calls with their results, parts."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}] if chance.random() < 0.7 else []
    for turn in range(chance.randrange(1, 30)):
        text = sentence(turn, chance.randrange(1, 120))
        parts = [{"type": "text", "text": text}, {"type": "text", "text": "and this"}]
        said.append({"role": "user", "content": parts if chance.random() < 0.2 else text})
        for call in range(chance.choice((0, 0, 1, 2))):
            said += tool_round(f"call_{turn}_{call}", sentence(turn, chance.randrange(1, 200)))
        said.append({"role": "assistant", "content": sentence(turn, chance.randrange(1, 60))})
    return [*said, {"role": "user", "content": "What came last?"}]


def test_D38_what_was_valid_is_valid_after_any_cut(place: Place) -> None:
    chance, cut = random.Random(38), 0
    for _ in range(150):
        body = {"model": "gpt-4o", "messages": conversation(chance)}
        assert validate(body, CHECKS) is None
        window = str(chance.choice((500, 1_000, 2_000, 4_000)))
        place.scripted()
        got = place.ask(body, headers={"x-plimsoll-window": window})
        assert got.status in (200, 400)
        for raw in sent(place):
            assert validate(json.loads(raw), CHECKS) is None
            cut += raw != json.dumps(body).encode()
    assert cut > 50


def test_D39_a_cut_is_the_same_each_time_and_needs_no_other(place: Place) -> None:
    window = {"x-plimsoll-window": "3000"}
    body = json.dumps({"model": "gpt-4o", "messages": talk(300)}).encode()
    for _ in range(6):
        assert place.ask(body, headers=window).status == 200
    cuts = sent(place)
    assert len(set(cuts)) == 1 and len(cuts[0]) < len(body) / 2
    place.scripted()
    assert place.ask(cuts[0], headers=window).status == 200
    assert place.ask(body).status == 200
    assert sent(place) == [cuts[0], body], "what fits goes byte for byte"


def small() -> dict[str, bytes]:
    """Requests of some 10 KiB that are made to cost more than they are."""
    size = 10_000
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(size // 30)}}
    tool = {"type": "function", "function": {"name": "f", "parameters": wide}}
    nested = "".join('{"a":' for _ in range(size // 8)) + "1" + "}" * (size // 8)
    return {
        "a name of slashes": json.dumps({**HELLO, "model": "/" * size}).encode(),
        "a name of dashes": json.dumps({**HELLO, "model": "code-" * (size // 5)}).encode(),
        "many messages": json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "a"}] * 300}).encode(),
        "many parts": asking([{"type": "text", "text": "a"}] * 300),
        "many numbers": asking("x", logit_bias={str(i): 1 for i in range(size // 12)}),
        "a wide tool": asking("x", tools=[tool]),
        "nested": asking("x")[:-1] + b',"metadata":' + nested.encode() + b"}",
        "line ends in a result": json.dumps(
            {"model": "gpt-4o", "messages": [*talk(2), *tool_round("a", "\n" * (size // 2)), *talk(1)]}
        ).encode(),
        "one letter": asking("a" * size),
        "braces": asking("[{" * (size // 2)),
        "escapes": asking("\x00" * (size // 6)),
        "images": asking([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}] * 100),
    }


def test_D40_no_small_request_costs_a_hundred_times_what_a_plain_one_costs(place: Place) -> None:
    plain = asking(sentence(1, 1_600))

    def cost(body: bytes) -> float:
        before = place.proxy.cpu_seconds()
        for _ in range(10):
            for headers in ({}, {"x-plimsoll-window": "1000"}):
                assert place.ask(body, headers=headers).status in (200, 400)
        return place.proxy.cpu_seconds() - before

    cost(plain)
    bar = 100 * max(cost(plain), 0.02)
    for name, body in small().items():
        before = place.proxy.settled_mb()
        assert cost(body) < bar, name
        assert place.proxy.settled_mb() - before < 20, f"{name}: a MiB for each of twenty"


def test_D41_what_is_not_cut_survives_a_cut(place: Place) -> None:
    kept: dict[str, Any] = {
        "tool_choice": {"type": "function", "function": {"name": "search"}},
        "tools": [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}, "x": 1}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        "store": True,
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "x", "ttl": 1},
        "safety_identifier": "s",
        "service_tier": "flex",
        "stream_options": {"include_usage": True, "include_obfuscation": False},
        "seed": 123456789012345678901234567890,
        "user": "u",
        "logit_bias": {"5": -1.50},
        "future_field": [1, {"a": None}],
    }
    last = {"role": "user", "content": [{"type": "text", "text": "Now?", "prompt_cache_breakpoint": {"mode": "x"}}]}
    body = {"model": "gpt-4o", **kept, "messages": [*talk(300), last]}
    assert place.ask(body, headers={"x-plimsoll-window": "3000"}).status == 200
    (raw,) = sent(place)
    cut = json.loads(raw)
    assert len(cut["messages"]) < 100 and cut["messages"][-1] == last
    assert {name: cut[name] for name in kept} == kept
    assert place.there.requests[-1].target == CHAT.encode()
