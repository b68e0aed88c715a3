"""What a body does not show: images by URL, files by id, calls without ids. It refuses nothing and cuts nothing."""

from __future__ import annotations

import http.client
import json
import random
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, ok, refused, running, upstream
from tests.recorder import Peer, Request, Script, answer

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
MODELS = (
    "gpt-4o-mini",
    "gpt-4o",
    "gpt-5.2",
    "claude-sonnet-4-5",
    "gemini-2.5-flash",
    "mistral-medium-latest",
    "acme/harbour-9b",
)
WINDOW = {"x-plimsoll-window": "128000"}
TOO_LONG = "This model's maximum context length is 128000 tokens. However, your messages resulted in {} tokens."

Part = dict[str, Any]


def link(number: int) -> str:
    return f"https://example.org/pictures/{number}.jpg"


def image(path: str, number: int) -> Part:
    """The part for an image by its URL."""
    if path == MESSAGES:
        return {"type": "image", "source": {"type": "url", "url": link(number)}}
    if path == RESPONSES:
        return {"type": "input_image", "image_url": link(number)}
    return {"type": "image_url", "image_url": {"url": link(number)}}


def file(path: str, number: int) -> Part:
    """The part for a file by its id."""
    if path == MESSAGES:
        return {"type": "document", "source": {"type": "file", "file_id": f"file-{number}"}}
    if path == RESPONSES:
        return {"type": "input_file", "file_id": f"file-{number}"}
    return {"type": "file", "file": {"file_id": f"file-{number}"}}


def text(path: str, words: str) -> Part:
    return {"type": "input_text" if path == RESPONSES else "text", "text": words}


def body(path: str, model: str, *turns: list[Part]) -> bytes:
    """A conversation with these turns of the user."""
    told: list[dict[str, Any]] = []
    for number, parts in enumerate(turns):
        told += [{"role": "assistant", "content": f"That is number {number}."}] if number else []
        told.append({"role": "user", "content": [text(path, f"What is on picture {number}?"), *parts]})
    fields: dict[str, Any] = {"input": told} if path == RESPONSES else {"messages": told}
    return json.dumps({"model": model, **fields, **({"max_tokens": 500} if path == MESSAGES else {})}).encode()


def in_one_message(path: str, model: str) -> bytes:
    return body(path, model, [image(path, number) for number in range(4)])


def over_four_turns(path: str, model: str) -> bytes:
    return body(path, model, *([image(path, number)] for number in range(4)))


def six_files(path: str, model: str) -> bytes:
    return body(path, model, [file(path, number) for number in range(6)])


def ten_images(path: str, model: str) -> bytes:
    return body(path, model, *([image(path, 2 * number), image(path, 2 * number + 1)] for number in range(5)))


def reporting(tokens: int) -> Script:
    """An upstream whose usage says that each prompt had so many tokens."""

    async def script(request: Request, peer: Peer) -> None:
        if request.target == MESSAGES.encode():
            told = {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}
            usage: dict[str, int] = {"input_tokens": tokens, "output_tokens": 1}
        elif request.target == RESPONSES.encode():
            told = {"object": "response", "status": "completed", "output": []}
            usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        else:
            await peer.send(ok(tokens))
            return
        await peer.send(answer(json.dumps({"id": "r", "model": "m", **told, "usage": usage}).encode()))

    return script


@pytest.fixture(scope="module")
def place(workers: int) -> Iterator[Place]:
    with upstream() as there, running(f"http://127.0.0.1:{there.port}/v1", workers=workers) as proxy:
        yield Place(proxy, there)


@pytest.mark.parametrize("made", [in_one_message, over_four_turns, six_files, ten_images])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_W1_W2_images_by_url_and_files_by_id_go_byte_for_byte(
    place: Place, path: str, made: Callable[[str, str], bytes]
) -> None:
    for model in MODELS:
        place.scripted(reporting(9_000))
        sent = made(path, model)
        got = place.proxy.ask(sent, path, headers=WINDOW, key=f"sk-{model}-{made.__name__}")
        assert got.status == 200, (model, got.body)
        assert [request.body for request in place.seen()] == [sent], model


def test_W1_a_refusal_heals_a_request_with_images_by_url(place: Place) -> None:
    """Each image costs 30,000: ten are too many, and turns go, but not the pinned first one."""

    async def script(request: Request, peer: Peer) -> None:
        prompt = 200 + 30_000 * request.body.count(b"https://example.org")
        await peer.send(refused(TOO_LONG.format(prompt)) if prompt > 128_000 else ok(prompt))

    place.scripted(script)
    got = place.proxy.ask(ten_images(CHAT, "gpt-4o-mini"), key="sk-healed")
    assert got.status == 200, got.body
    bodies = [request.body for request in place.seen()]
    assert len(bodies) == 2 and link(9).encode() in bodies[1] and link(2).encode() not in bodies[1]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("made", [in_one_message, over_four_turns, six_files])
def test_W1_W2_after_one_answer_the_same_urls_and_ids_count_within_two_per_cent_of_usage(
    place: Place, path: str, made: Callable[[str, str], bytes]
) -> None:
    for model in MODELS:
        key, true = f"sk-{model}-{made.__name__}-{path}", 34_567
        place.scripted(reporting(true))
        on = place.proxy.connection()
        sent = made(path, model)
        assert abs(counted(place, on, path, sent, key) - true) > 0.02 * true
        assert place.proxy.ask(sent, path, key=key, on=on).status == 200
        assert abs(counted(place, on, path, sent, key) - true) <= 0.02 * true, model
        assert abs(counted(place, on, path, sent, "sk-another") - true) > 0.02 * true, "another tenant's is its own"
        on.close()


def counted(place: Place, on: http.client.HTTPConnection, path: str, sent: bytes, key: str) -> int:
    """Our count of a request's prompt, by the worker of a connection."""
    found: int = place.proxy.ask(sent, f"/inspect{path}", key=key, on=on).json["tokens"]["prompt"]
    return found


def test_W1_a_text_that_must_be_cut_is_cut_by_what_it_shows_and_its_images_stay(place: Place) -> None:
    long = [[text(CHAT, "tide crane cargo pilot " * 3_000)] for _ in range(12)]
    sent = body(CHAT, "gpt-4o-mini", *long, [image(CHAT, number) for number in range(6)])
    place.scripted(reporting(100_000))
    assert place.proxy.ask(sent, key="sk-long").status == 200
    (request,) = place.seen()
    assert len(request.body) < len(sent)
    assert all(link(number).encode() in request.body for number in range(6))
    assert len(request.body) > len(sent) / 3, "the usual cost of six images (153,006) leaves no room for any text"


def test_W24_calls_and_results_without_ids_go_byte_for_byte_are_measured_and_stay_together(place: Place) -> None:
    call = {"id": None, "type": "function", "function": {"name": "find", "arguments": "{}"}}
    pair = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": None, "content": "tide crane cargo pilot " * 2_000},
    ]
    question = {"role": "user", "content": "Where is the pilot?"}
    fits = json.dumps({"model": "gpt-4o", "messages": [question, *pair, question]}).encode()
    place.scripted(reporting(8_000))
    assert place.proxy.ask(fits).status == 200
    measured = place.proxy.ask(fits, f"/inspect{CHAT}")
    assert measured.status == 200 and measured.json["tokens"]["prompt"] > 8_000
    long = json.dumps({"model": "gpt-4o", "messages": [question, *pair * 30, question]}).encode()
    assert place.proxy.ask(long).status == 200
    first, second = (request.body for request in place.seen())
    assert first == fits and len(second) < len(long)
    roles = [message["role"] for message in json.loads(second)["messages"]]
    assert all(roles[place - 1] == "assistant" for place, role in enumerate(roles) if role == "tool")
    assert roles.count("tool") == roles.count("assistant") > 1


@pytest.mark.parametrize("name", ["my-qwen3-8b-q4", "gemini-3-harbour-7", "ibm/granite4-pilot"])
def test_W18_a_name_that_is_only_like_known_ones_cuts_nothing_and_a_refusal_heals_it(place: Place, name: str) -> None:
    turns = ["tide crane cargo pilot " * 2_000, *("cargo of the tide " * 2_000 for _ in range(4)), "Where is it?"]
    told = [{"role": ("user", "assistant")[number % 2], "content": turn} for number, turn in enumerate(turns[:-1])]
    sent = json.dumps({"model": name, "messages": [*told, {"role": "user", "content": turns[-1]}] * 40}).encode()
    place.scripted(reporting(200_000))
    assert place.proxy.ask(sent, key=f"sk-like-{name}").status == 200
    assert [request.body for request in place.seen()] == [sent]

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(refused(TOO_LONG.format(2_000_000)) if len(request.body) > 500_000 else ok(100_000))

    place.scripted(script)
    assert place.proxy.ask(sent, key=f"sk-healed-{name}").status == 200
    first, *_, last = (request.body for request in place.seen() if request.method == b"POST")
    assert first == sent and len(last) <= 500_000


def test_W14_an_image_inside_a_text_goes_byte_for_byte_to_a_model_that_reads_it_and_is_text_for_others(
    place: Place,
) -> None:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1_240, 1_754)
    data = b64encode(head + random.Random(14).randbytes(250_000)).decode()
    for model in ("nvidia/nemotron-parse", "nvidia/nemotron-nano-12b-v2-vl", "acme/harbour-9b"):
        content = f'<img src="data:image/png;base64,{data}" />'
        sent = json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()
        prompt = place.proxy.ask(sent, f"/inspect{CHAT}").json["tokens"]["prompt"]
        place.scripted(reporting(1_500))
        got = place.proxy.ask(sent, headers={"x-plimsoll-window": "16000"}, key="sk-inline")
        if model.startswith("nvidia/"):
            assert prompt < 3_000 and got.status == 200, (model, prompt, got.body)
            assert [request.body for request in place.seen()] == [sent]
        else:
            assert prompt > 200_000 and [request.body for request in place.seen()] != [sent]


def test_W14_a_small_file_of_a_large_picture_is_not_proven_to_fit_by_its_bytes(place: Place) -> None:
    head = b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 2_048, 2_048)).decode()
    content = f'<img src="data:image/png;base64,{head}" />' * 20
    model = "nvidia/nemotron-nano-12b-v2-vl"
    sent = json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()
    place.scripted(reporting(1_500))
    got = place.proxy.ask(sent, headers={"x-plimsoll-window": "16000"}, key="sk-small")
    assert len(sent) < 3_000 and [request.body for request in place.seen()] != [sent], got.body
