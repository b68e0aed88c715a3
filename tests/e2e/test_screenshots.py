"""Runs of agents that use a computer, through the proxy to an upstream that refuses what is too long or not valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import Running, before_simulator
from tests.pictures import FIELDS, PATHS, STEPS, body, computer_step, images_in, png, run, said_at, shot
from tests.serving import Reply, ask, post
from tests.serving import run as complete

Json = Any
HEADERS = (b"content-type: application/json", b"authorization: Bearer k", b"anthropic-version: 2023-06-01")


async def asked(proxy: Running, name: str, request: Json, window: int) -> Reply:
    headers = (*HEADERS, b"x-plimsoll-window: %d" % window)
    return await ask(proxy.port, post(json.dumps(request).encode(), *headers, target=PATHS[name].encode()))


@pytest.mark.parametrize("window", [32_000, 128_000])
@pytest.mark.parametrize("name", sorted(STEPS))
def test_sixty_screenshots_are_answered_and_later_turns_begin_as_earlier_ones(name: str, window: int) -> None:
    complete(sixty(name, window))


async def sixty(name: str, window: int) -> None:
    """Full-page shots beside pages of text where the window is large: sixty of the others would fit."""
    size = (1500, 1500) if window > 32_000 else (1280, 800)
    words = 0 if window == 32_000 else 1_000 if name == "messages" else 1_700
    shots = [png(*size, i) for i in range(60)]
    before: list[Json] = []
    cuts = turns = 0
    async with before_simulator(SimulatorConfig(window=window)) as (upstream, proxy):
        for count in (10, *range(20, 61, 2)):
            request = run(name, shots[:count], words)
            got = await asked(proxy, name, request, window)
            assert got.status == 200, got.body
            now = json.loads(upstream.received[-1].body)[FIELDS[name]]
            assert all(said_at(i) in json.dumps(now) for i in range(count))
            assert images_in(now) == shots[:count][-len(images_in(now)) :] and len(images_in(now)) >= 3
            if now != request[FIELDS[name]]:
                turns += 1
                cuts += now[: len(before)] != before
            else:
                assert upstream.received[-1].body == json.dumps(request).encode()
            before = now
    assert turns >= 5 and cuts <= turns / 2


def test_what_answers_a_computer_call_is_a_screenshot_or_gone_with_its_call() -> None:
    complete(computer_calls())


async def computer_calls() -> None:
    steps = [item for i in range(60) for item in computer_step(i, shot(i), "")]
    functions = [item for i in range(60, 100) for item in STEPS["responses"](i, shot(i), said_at(i))]
    async with before_simulator(SimulatorConfig(window=32_000)) as (upstream, proxy):
        for items in (steps, [*steps, *functions]):
            request = body("responses", [{"role": "user", "content": "File the invoices."}, *items])
            got = await asked(proxy, "responses", request, 32_000)
            assert got.status == 200, got.body
            now = json.loads(upstream.received[-1].body)["input"]
            answers = [item for item in now if item.get("type") == "computer_call_output"]
            assert all(item["output"]["type"] == "computer_screenshot" for item in answers)
            calls = [item["call_id"] for item in now if item.get("type") == "computer_call"]
            assert [item["call_id"] for item in answers] == calls
            assert images_in(now)[-3:] == images_in(items)[-3:]


@pytest.mark.parametrize("name", sorted(STEPS))
def test_thirty_images_in_the_last_message_stay_and_are_refused_where_they_do_not_fit(name: str) -> None:
    complete(thirty(name))


async def thirty(name: str) -> None:
    image = STEPS[name](0, "", "")[1]
    many = [_image(name, image, shot(i)) for i in range(30)]
    request = run(name, [shot(i) for i in range(40, 60)])
    request[FIELDS[name]].append({"role": "user", "content": many})
    async with before_simulator(SimulatorConfig(window=70_000)) as (upstream, proxy):
        got = await asked(proxy, name, request, 60_000)
        assert got.status == 200, got.body
        assert images_in(json.loads(upstream.received[-1].body))[-30:] == [shot(i) for i in range(30)]
        got = await asked(proxy, name, request, 9_000)
        assert got.status == 400


def _image(name: str, answer: Json, data: str) -> Json:
    """An image as it stands in the answer of a step, with other data."""
    (part,) = [p for p in _parts(name, answer) if "text" not in p["type"]]
    if name == "messages":
        return {**part, "source": {**part["source"], "data": data}}
    key = "image_url"
    url = f"data:image/png;base64,{data}"
    return {**part, key: {**part[key], "url": url} if isinstance(part[key], dict) else url}


def _parts(name: str, answer: Json) -> list[Json]:
    content: list[Json] = answer.get("content") or answer.get("output")
    return content[0]["content"] if name == "messages" else content
