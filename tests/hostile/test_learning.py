"""What refusals teach: nobody teaches anybody else, nobody teaches by words, and nothing is learned for good."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest

from tests import warm
from tests.hostile.harness import CHAT, eventually, ok, refused, running, upstream
from tests.ports import held_port
from tests.recorder import EVENTS, Peer, Recorder, Request, Script, answer, chunk
from tests.redis_server import redis_server

MODELS = ("gpt-4o", "acme/harbour-9b")  # one that a table knows, and one that none does
WORDS = "tide crane cargo pilot ballast harbour ledger rope"
ATTACKER = {"authorization": "Bearer sk-attacker"}
VICTIM = {"authorization": "Bearer sk-victim"}
TOO_LONG = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens. "
    "Please reduce the length of the messages."
)


def talk(turns: int, model: str = "gpt-4o", **fields: Any) -> dict[str, Any]:
    """A conversation of some 48 tokens a turn."""
    said = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"Entry {i}: " + " ".join((WORDS.split() * 5)[:40])}
        for i in range(turns)
    ]
    return {"model": model, **fields, "messages": [*said, {"role": "user", "content": "What is the last entry?"}]}


def size(body: Any) -> int:
    """About what the scripted upstreams count: a token a word, and what stands around messages."""
    messages = (body if isinstance(body, dict) else json.loads(body))["messages"]
    return sum(4 + len(str(m["content"]).split()) + 3 * ("Entry" in str(m["content"])) for m in messages)


def sent(up: Recorder) -> list[dict[str, Any]]:
    """The chats that came, parsed."""
    return [json.loads(r.body) for r in up.requests if r.method == b"POST"]


def strict(windows: Callable[[Request], int], text: str = TOO_LONG) -> Script:
    """An upstream that refuses what is over the window that a request meets, in OpenAI's words, and reports usage."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
            return
        prompt, window = size(request.body), windows(request)
        if prompt > window:
            await peer.send(refused(text.format(window=window, prompt=prompt)))
        else:
            await peer.send(ok(prompt))

    return script


# F2: an error quotes what a client sent.

CLAIM = "maximum context length is 200 tokens"
FORMS: dict[str, tuple[str, str]] = {
    "a property's name": (CLAIM, f"In context=('properties', '{CLAIM}'), array schema missing items."),
    "upper case": (CLAIM.upper(), f"In context=('properties', '{CLAIM}'), array schema missing items."),
    "double quotes": (CLAIM, f'Invalid schema: "{CLAIM}" is not of type object.'),
    "escaped quotes": (CLAIM, f'Invalid schema: \\"{CLAIM}\\" is not of type object.'),
    "escapes of unicode": (CLAIM.replace(" ", "\u00a0"), "Bad: maximum\\u0020context\\u0020length is 200 tokens"),
    "folded blanks": (CLAIM.replace(" ", "\n\t "), f"Invalid name: {CLAIM}"),
    "cut off": (CLAIM + " and so on", "Invalid name: 'maximum context length is 200...'"),
    "json in json": (CLAIM, json.dumps({"error": {"path": ["tools", 0, {"name": CLAIM}]}})),
    "the upstream's own count": (
        CLAIM + ". However, your messages resulted in 5000 tokens",
        f"Unsupported value: {CLAIM}. However, your messages resulted in 5000 tokens",
    ),
    "an anthropic wording": (
        "prompt is too long: 900 tokens > 200 maximum",
        "prompt is too long: 900 tokens > 200 maximum",
    ),
    "a sum": ("`inputs` tokens + `max_new_tokens` must be <= 200",) * 2,
    "no figure at all": ("context_length_exceeded", "Unknown name: context_length_exceeded"),
}


def poisoning(name: str, turns: int = 6) -> dict[str, Any]:
    """A short request with a tool whose schema names a limit."""
    schema = {"type": "object", "properties": {name: {"type": "array"}}}
    return {**talk(turns), "tools": [{"type": "function", "function": {"name": "t", "parameters": schema}}]}


def quoting(error: str) -> Script:
    """An upstream that quotes a tool's schema, and answers everything else."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
        elif b'"tools"' in request.body:
            await peer.send(refused(f"Invalid schema for function 't': {error}", code="invalid_function_parameters"))
        else:
            await peer.send(ok(size(request.body)))

    return script


def test_F2_a_quoted_limit_changes_nothing_for_anybody(workers: int) -> None:
    """In a dozen forms: neither for another caller, nor for who sent it."""
    said = {"error": ""}

    async def script(request: Request, peer: Peer) -> None:
        await quoting(said["error"])(request, peer)

    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for model, (form, (name, said["error"])) in product(MODELS, FORMS.items()):
            attack, innocent = {**poisoning(name), "model": model}, {**talk(30), "model": model}
            for _ in range(2 * workers):
                assert proxy.ask(attack, headers=ATTACKER).status == 400, form
            for key in (VICTIM, ATTACKER):
                for _ in range(2 * workers):
                    assert proxy.ask(innocent, headers=key).status == 200, form
                    assert sent(up)[-1] == innocent, form


def test_F2_a_limit_that_would_be_believed_is_believed_of_its_sender_alone(workers: int) -> None:
    """An upstream whose errors are the attacker's to write: even then nobody else is cut, on no replica."""
    error = TOO_LONG.format(window=200, prompt=size(poisoning("x")))

    with redis_server() as redis, upstream(quoting(error)) as up:
        start = partial(running, up.url, PLIMSOLL_REDIS=redis.url, PLIMSOLL_SECRET="s" * 32)
        with start(workers=workers) as one, start() as two:
            for _ in range(3 * workers):
                one.ask(poisoning("x"), headers=ATTACKER)
            eventually(lambda: any("limits" in name for name in redis.names()))
            for proxy in (one, two, one, two):
                assert proxy.ask(talk(30), headers=VICTIM).status == 200
                assert sent(up)[-1] == talk(30)


def test_F2_a_request_that_is_under_a_limit_proves_none(workers: int) -> None:
    """Without keys all are one caller: what was refused must have been over what the refusal names."""
    error = "maximum context length is 2000 tokens. However, your messages resulted in 2100 tokens."
    with upstream(quoting(error)) as up, running(up.url, workers=workers) as proxy:
        for _ in range(3 * workers):
            proxy.ask(poisoning("x"))
        for _ in range(2 * workers):
            assert proxy.ask(talk(90)).status == 200
            assert sent(up)[-1] == talk(90)


WIDE = "maximum context length is 2000 tokens"
SPACED: dict[str, tuple[str, str]] = {
    "far apart": (WIDE.replace(" ", " " * 200), WIDE),
    "far apart, as it came": (WIDE.replace(" ", "\u2003" * 200), WIDE.replace(" ", "\u2003" * 200)),
    "form feeds": (WIDE.replace(" ", "\f"), WIDE.replace(" ", "\f")),
    "quotes between": (WIDE.replace(" ", " " + "'" * 200 + " "), WIDE.replace(" ", " " + "'" * 200 + " ")),
    "quotes within": ("m'aximum c'ontext l'ength is 2'000 t'okens",) * 2,
    "escapes within": ("m\\aximum c\\ontext length is 20\\00 tokens",) * 2,
}


def test_F2_a_quoted_limit_is_known_however_it_is_spaced(workers: int) -> None:
    """Of a request that is over it, without a key: all who have none are one caller."""
    said = {"error": ""}

    async def script(request: Request, peer: Peer) -> None:
        if b"?" in request.target:
            await peer.send(refused(f"Unknown query parameter: {WIDE}", code="unknown_parameter"))
        else:
            await quoting(said["error"])(request, peer)

    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for form, (name, said["error"]) in SPACED.items():
            for _ in range(2 * workers):
                proxy.ask(poisoning(name, 90), key=None)
            for _ in range(2 * workers):
                assert proxy.ask(talk(90), key=None).status == 200
                assert sent(up)[-1] == talk(90), form
        for query in (WIDE.replace(" ", "+"), quote(WIDE)):
            for _ in range(2 * workers):
                proxy.ask(talk(90), f"{CHAT}?{query}=1", key=None)
            for _ in range(2 * workers):
                assert proxy.ask(talk(90), key=None).status == 200
                assert sent(up)[-1] == talk(90), query


# F3: two keys with two windows.


@pytest.mark.parametrize("name", ["x-goog-api-key", "ocp-apim-subscription-key", "openai-organization", "cookie", "?"])
def test_F3_whatever_parts_clients_upstream_parts_what_they_teach(name: str) -> None:
    """Credentials by other names, and in a query."""

    def window(request: Request) -> int:
        return 4_096 if b"basic" in request.head else 32_768

    long = talk(200)
    with upstream(strict(window)) as up, running(up.url) as proxy:
        for tier in ("basic", "premium", "basic", "premium"):
            path, headers = (f"{CHAT}?api_key={tier}", {}) if name == "?" else (CHAT, {name: tier})
            assert proxy.ask(long, path, headers=headers, key=None).status == 200
            assert (sent(up)[-1] == long) is (tier == "premium"), tier
        assert len(sent(up)) == 5


def tiers(request: Request) -> int:
    return 4_096 if b"Bearer sk-basic" in request.header(b"authorization") else 32_768


def test_F3_a_premium_and_a_basic_key_keep_their_own_windows(workers: int) -> None:
    basic, premium = ({"authorization": f"Bearer sk-{tier}"} for tier in ("basic", "premium"))
    with upstream(strict(tiers)) as up, running(up.url, workers=workers) as proxy:
        for long in (talk(200, model) for model in MODELS):
            up.requests.clear()
            for _ in range(3 * workers):
                assert proxy.ask(long, headers=basic).status == 200
                assert size(sent(up)[-1]) <= 4_096
            for _ in range(3 * workers):
                assert proxy.ask(long, headers=premium).status == 200
                assert sent(up)[-1] == long
            refusals = len(sent(up)) - 6 * workers
            assert 1 <= refusals <= workers  # each worker learned it once
            proxy.ask(long, headers=basic)
            assert size(sent(up)[-1]) <= 4_096


# R2: an upstream that is restarted with another window.


@pytest.mark.parametrize("stream", [False, True])
def test_R2_an_upstream_restarted_with_a_larger_window_is_used_fully_without_help(stream: bool, workers: int) -> None:
    window = {"tokens": 2_048}

    async def script(request: Request, peer: Peer) -> None:
        prompt = size(request.body) if request.body else 0
        if stream and 0 < prompt <= window["tokens"]:
            told = json.dumps(
                {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
            )
            await peer.send(EVENTS, chunk(f"data: {told}\n\ndata: [DONE]\n\n".encode()), chunk(b""))
        else:
            await strict(lambda _: window["tokens"])(request, peer)

    long = talk(80, "acme/harbour-9b", **({"stream": True} if stream else {}))
    with upstream(script) as up, running(up.url, workers=workers, PLIMSOLL_PROBE_AFTER="1") as proxy:
        for _ in range(2 * workers):
            assert proxy.ask(long).status == 200
            assert size(sent(up)[-1]) <= 2_048

        def tried() -> bool:
            assert proxy.ask(long).status == 200
            return sent(up)[-2] == long and size(sent(up)[-1]) <= 2_048

        def used() -> bool:
            assert proxy.ask(long).status == 200
            return sent(up)[-1] == long

        eventually(tried)  # after what PLIMSOLL_PROBE_AFTER says, one tries it and is healed
        window["tokens"] = 8_192
        eventually(lambda: all(used() for _ in range(3 * workers)))  # a probe that was refused doubles the wait
        window["tokens"] = 2_048  # and one that shrinks heals as before
        assert proxy.ask(long).status == 200
        assert size(sent(up)[-1]) <= 2_048


@pytest.mark.parametrize("names", [True, False])
def test_R2_a_larger_model_whose_window_grew_is_used_fully_again(names: bool) -> None:
    """What was learned of a model that requests are moved to is tried like what was learned of their own."""
    windows = {"gpt-4": 8_192, "gpt-4o": 10_000}
    text = TOO_LONG if names else "Please reduce the length of the messages or completion."
    long = talk(250, "gpt-4")
    start = partial(running, LLM_FALLBACK_ENABLED="true", LLM_ALLOWED_FALLBACK_MODELS="gpt-4o")

    def holds(request: Request) -> int:
        return windows[json.loads(request.body)["model"]]

    with upstream(strict(holds, text)) as up, start(up.url, PLIMSOLL_PROBE_AFTER="1") as proxy:
        began = time.monotonic()
        for _ in range(2):
            assert proxy.ask(long).status == 200
            assert size(sent(up)[-1]) <= 10_000
        # The second request needs no refusal, unless it came so late that it was a probe.
        assert not names or len(sent(up)) == 3 or time.monotonic() - began >= 1

        def asked() -> list[bool]:
            """Which of the requests that one of ours becomes are over the window."""
            before = len(sent(up))
            assert proxy.ask(long).status == 200
            return [size(one) > 10_000 for one in sent(up)[before:]]

        if names:
            eventually(lambda: asked() == [True, False])  # after what PLIMSOLL_PROBE_AFTER says, one tries it: healed
        windows["gpt-4o"] = 128_000
        if names:
            eventually(lambda: asked() == [True])  # a probe that was refused doubles the wait
        for _ in range(2):
            assert proxy.ask(long).status == 200
            assert sent(up)[-1] == {**long, "model": "gpt-4o"}


def test_R2_an_upstream_that_was_away_is_tried_at_once() -> None:
    long = talk(80)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())  # nobody else takes it while the upstream is away
        with upstream(strict(lambda _: 2_048), port=port) as up:
            proxy = stack.enter_context(running(up.url))
            for _ in range(2):
                assert proxy.ask(long).status == 200
            assert len(sent(up)) == 3
        assert proxy.ask(long).status == 502
        with upstream(strict(lambda _: 8_192), port=port) as again:
            assert proxy.ask(long).status == 200
            assert sent(again) == [long]
            proxy.stop()


def test_R2_an_upstream_that_cuts_silently_has_not_grown() -> None:
    silent = {"now": False}

    async def script(request: Request, peer: Peer) -> None:
        if silent["now"]:
            await peer.send(ok(min(2_000, size(request.body))))
        else:
            await strict(lambda _: 2_048)(request, peer)

    with upstream(script) as up, running(up.url, PLIMSOLL_PROBE_AFTER="1") as proxy:
        assert proxy.ask(talk(80)).status == 200
        silent["now"] = True
        time.sleep(1.1)
        assert proxy.ask(talk(80)).status == 200
        assert sent(up)[-1] == talk(80)
        assert proxy.ask(talk(80)).status == 200
        assert size(sent(up)[-1]) <= 2_048


def test_R2_a_list_that_says_more_is_heard() -> None:
    """The window comes from the upstream's own list, and that changed."""
    listed = {"tokens": 2_048}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            told = {"id": "acme/harbour-9b", "object": "model", "max_model_len": listed["tokens"]}
            await peer.send(answer(json.dumps({"object": "list", "data": [told]}).encode()))
        else:
            await strict(lambda _: listed["tokens"])(request, peer)

    long = talk(80, "acme/harbour-9b")
    with upstream(script) as up, running(up.url, PLIMSOLL_PROBE_AFTER="1") as proxy:
        assert proxy.ask(long).status == 200
        assert size(sent(up)[-1]) <= 2_048 and len(sent(up)) == 1
        listed["tokens"] = 8_192
        time.sleep(1.1)
        assert proxy.ask(long).status == 200
        assert sent(up)[-1] == long


# What says nothing of a window, and figures that are not ours.

SLOTS_FULL = b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'


def test_R4_slots_that_are_full_together_teach_nothing(workers: int) -> None:
    full = {"now": True}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
        elif full["now"] and size(request.body) > 3_000:
            await peer.send(answer(SLOTS_FULL, b"500 Internal Server Error"))
        else:
            await peer.send(ok(size(request.body)))

    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for long in (talk(80, model) for model in MODELS):
            full["now"] = True
            for _ in range(2 * workers):
                assert proxy.ask(long).status == 200
                assert sent(up)[-2] == long and size(sent(up)[-1]) <= 3_000  # it is tried again, smaller
            full["now"] = False
            for _ in range(2 * workers):
                assert proxy.ask(long).status == 200
                assert sent(up)[-1] == long


def test_R6_the_upstreams_own_count_is_used_where_it_is_lower(workers: int) -> None:
    """A model that nobody knows: we estimate more than it counts, and its refusal says so."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
            return
        prompt = int(0.6 * size(request.body))
        body = ok(prompt) if prompt <= 2_048 else refused(TOO_LONG.format(window=2_048, prompt=prompt))
        await peer.send(body)

    long = talk(120, "acme/harbour-9b", max_tokens=100)
    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for _ in range(2 * workers):
            assert proxy.ask(long).status == 200
            assert 0.6 * size(sent(up)[-1]) > 0.5 * 2_048
        assert len(sent(up)) <= 3 * workers  # each worker met one refusal


def test_R8_refusals_without_figures_do_not_add_up(workers: int) -> None:
    """An upstream that refuses everything for a while, in words that name nothing."""
    angry = {"now": True}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
        elif angry["now"]:
            await peer.send(refused("Please reduce the length of the messages or completion."))
        else:
            await peer.send(ok(size(request.body)))

    long = talk(90, "acme/harbour-9b", max_tokens=100)
    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for turns in (90, 90, 20, 5, 1) * workers:
            told = proxy.ask(talk(turns, "acme/harbour-9b", max_tokens=100))
            assert (told.status, b"maximum context length is" in told.body) == (400, False)
            assert b"Please reduce" in told.body
        angry["now"] = False
        for _ in range(2 * workers):
            assert proxy.ask(long).status == 200
            assert size(sent(up)[-1]) > 0.3 * size(long)


@pytest.mark.parametrize("model", ["gpt-4o", "acme/harbour-9b"])
def test_F2_no_error_of_ours_rests_on_a_limit_that_was_learned(model: str) -> None:
    """What no plan fits goes out as it is, and what the upstream says goes to the client."""
    window = {"tokens": 12}
    pinned = {
        "model": model,
        "messages": [{"role": "system", "content": "Rule: " + WORDS}, {"role": "user", "content": WORDS * 150}],
    }
    with upstream(strict(lambda _: window["tokens"])) as up, running(up.url) as proxy:
        for _ in range(3):
            told = proxy.ask(pinned, headers={"x-plimsoll-ladder": "lossless"})
            assert told.status == 400 and b"is 12 tokens. However, your messages" in told.body
            assert sent(up)[0] == pinned
        window["tokens"] = 100_000
        assert proxy.ask(pinned, headers={"x-plimsoll-ladder": "lossless"}).status == 200
        assert sent(up)[-1] == pinned


def test_F2_our_own_refusal_rests_on_what_is_stated() -> None:
    with upstream() as up, running(up.url) as proxy:
        body = {**talk(3), "messages": [{"role": "system", "content": WORDS * 100}, *talk(3)["messages"]]}
        told = proxy.ask(body, headers={"x-plimsoll-window": "50", "x-plimsoll-ladder": "lossless"})
        assert (told.status, sent(up)) == (400, [])


# What was learned is shown with its evidence, and forgotten, by operators alone.

ADMIN = {"x-plimsoll-admin": "1"}


def command(*argv: str) -> tuple[int, str]:
    """Exit code and output of a command of the command line."""
    return warm.ran(argv, os.environ)


@pytest.mark.parametrize("admin", [False, True])
def test_F2_what_was_learned_is_shown_with_its_evidence_and_forgotten(workers: int, admin: bool) -> None:
    model = "acme/harbour-9b"
    long = talk(80, model)
    with upstream(strict(lambda _: 2_048)) as up, running(up.url, workers=workers, admin=admin) as proxy:

        def limits() -> list[dict[str, Any]]:
            """Of whichever worker answers."""
            told = proxy.ask(path=f"/learned?model={quote(model, safe='')}", headers=ADMIN, admin=admin)
            assert (told.status, told.json["model"]) == (200, model)
            found: list[dict[str, Any]] = told.json["limits"]
            return found

        assert limits() == []
        for _ in range(8 * workers):
            assert proxy.ask(long, headers=VICTIM).status == 200
        shown: list[dict[str, Any]] = []
        while not shown:  # a worker that was asked nothing yet has learned nothing
            shown = limits()
        window = next(limit for limit in shown if limit["kind"] == "window")
        assert (window["kind"], window["value"], window["quality"]) == ("window", 2_048, "estimated")
        assert window["counted"] > 2_048 and window["named"] == size(long) and window["rule"]
        assert window["taught_at"] < window["probe_due"] < window["until"]
        inspected = proxy.ask(long, "/inspect" + CHAT, headers=VICTIM, admin=admin).json
        assert set(inspected["learned"]) == {"model", "limits", "counts", "agreed"}
        assert inspected["steps"] or workers > 1
        other = proxy.ask(long, "/inspect" + CHAT, headers=ATTACKER, admin=admin).json
        assert other["learned"]["limits"] == []
        assert "victim" not in json.dumps([window, inspected["learned"]])

        url = f"http://127.0.0.1:{proxy.admin_port if admin else proxy.port}"
        code, out = command("models", model, "--url", url)
        assert code == 0 and (workers > 1 or ("window 2,048" in out and window["until"] in out)), out
        code, out = command("forget", model, "--url", url)
        assert code == 0 and f"forgotten: {model}" in out, out
        for _ in range(4 * workers):
            assert limits() == []
        before = len(sent(up))
        assert proxy.ask(long, headers=VICTIM).status == 200
        assert sent(up)[before] == long  # it is learned anew


def test_F2_clients_of_the_data_port_forget_nothing() -> None:
    """Not where an admin port is, not where others reach the data port, not from a page in a browser."""
    body = {"model": "gpt-4o"}
    page = {**ADMIN, "origin": "http://127.0.0.1"}
    with upstream() as up:
        with running(up.url, admin=True) as proxy:
            for path, asked in (("/forget", body), ("/learned?model=gpt-4o", None)):
                assert proxy.ask(asked, path, headers=ADMIN).status == 404
                assert proxy.ask(asked, path, admin=True).status == 403
                assert proxy.ask(asked, path, headers=page, admin=True).status == 403
                assert proxy.ask(asked, path, headers=ADMIN, admin=True).status == 200
            for wrong in ({}, {"model": ""}, {"model": 1}, b"", b'{"model":"\\ud800"}', b"x" * 70_000):
                assert proxy.ask(wrong, "/forget", headers=ADMIN, admin=True).status in (400, 413), wrong
            assert proxy.ask(path="/learned", headers=ADMIN, admin=True).status == 400
            assert proxy.ask(path="/forget", headers=ADMIN, admin=True).status == 405
        with running(up.url, PLIMSOLL_HOST="0.0.0.0") as proxy:
            for path, asked in (("/forget", body), ("/learned?model=gpt-4o", None)):
                told = proxy.ask(asked, path, headers=ADMIN)
                assert (told.status, told.json["error"]["code"]) == (403, "admin_only")
            code, out = command("forget", "gpt-4o", "--url", f"http://127.0.0.1:{proxy.port}")
            assert code == 1 and "PLIMSOLL_ADMIN_PORT" in out, out
        assert up.requests == []


def test_F2_what_one_replica_is_told_to_forget_all_forget() -> None:
    long = talk(80)
    with redis_server() as redis, upstream(strict(lambda _: 2_048)) as up:
        start = partial(running, up.url, PLIMSOLL_REDIS=redis.url, PLIMSOLL_SECRET="s" * 32)
        with start() as one, start() as two:
            assert one.ask(long).status == 200
            eventually(lambda: any("limits" in name for name in redis.names()))
            assert two.ask(long).status == 200
            assert two.ask(path="/learned?model=gpt-4o", headers=ADMIN).json["limits"]
            before = len(sent(up))
            told = one.ask({"model": "gpt-4o"}, "/forget", headers=ADMIN)
            assert [limit["kind"] for limit in told.json["limits"]]
            eventually(lambda: two.ask(path="/learned?model=gpt-4o", headers=ADMIN).json["limits"] == [])
            assert two.ask(long).status == 200
            assert sent(up)[before] == long


@pytest.mark.parametrize("by", ["header", "setting"])
def test_F2_nor_does_one_that_is_capped_rest_on_a_bound_of_the_prompt_that_was_learned(by: str) -> None:
    """The client's or the user's own limit is larger than the bound: it is not what says that nothing fits."""
    bound = {"tokens": 12}

    async def script(request: Request, peer: Peer) -> None:
        prompt = size(request.body) if request.body else 0
        if prompt > bound["tokens"]:
            text = "The input token count ({}) exceeds the maximum number of tokens allowed ({})."
            await peer.send(refused(text.format(prompt, bound["tokens"])))
        else:
            await peer.send(ok(prompt) if prompt else answer(b"{}", b"404 Not Found"))

    pinned = {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "Rule: " + WORDS}, {"role": "user", "content": WORDS * 150}],
    }
    headers = {"x-plimsoll-ladder": "lossless", **({"x-plimsoll-window": "50000"} if by == "header" else {})}
    capped: Any = {"CONTEXT_TOTAL_TOKEN_LIMIT": "50000"} if by == "setting" else {}
    with upstream(script) as up, running(up.url, **capped) as proxy:
        for _ in range(2):
            told = proxy.ask(pinned, headers=headers)
            assert told.status == 400 and b"The input token count" in told.body, told.body
        bound["tokens"] = 100_000
        assert proxy.ask(pinned, headers=headers).status == 200
        assert sent(up)[-1] == pinned


def test_F3_a_rejected_key_hides_the_upstreams_list_from_nobody(workers: int) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.header(b"authorization") != [b"Bearer sk-victim"]:
            await peer.send(refused("Incorrect API key provided.", b"401 Unauthorized", "invalid_api_key"))
        elif request.method == b"GET":
            told = {"id": "acme/harbour-9b", "object": "model", "max_model_len": 2_048}
            await peer.send(answer(json.dumps({"object": "list", "data": [told]}).encode()))
        else:
            await strict(lambda _: 2_048)(request, peer)

    long = talk(80, "acme/harbour-9b")
    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for _ in range(4 * workers):
            assert proxy.ask(long, headers=ATTACKER).status == 401
        up.requests.clear()
        for _ in range(2 * workers):
            assert proxy.ask(long, headers=VICTIM).status == 200
            assert proxy.ask(long, headers=ATTACKER).status == 401
        mine = [r for r in up.requests if r.method == b"POST" and b"sk-victim" in r.head]
        assert len(mine) == 2 * workers and all(size(r.body) <= 2_048 for r in mine)


# S2: one caller, one vote.

UNKNOWN = "acme/harbour-9b"


def usage_of(factor: dict[str, float], good: tuple[str, ...] = ()) -> Script:
    """An upstream that reports so many times the tokens that it counts; with `good`, only to these keys."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
        elif good and request.header(b"authorization") not in [[f"Bearer {key}".encode()] for key in good]:
            await peer.send(refused("Incorrect API key provided.", b"401 Unauthorized", "invalid_api_key"))
        else:
            await peer.send(ok(round(size(request.body) * factor["now"])))

    return script


def plan_of(proxy: Any, headers: dict[str, str], workers: int) -> set[bytes]:
    """What `/inspect` of each worker says would be done with a conversation, without what was learned of counts."""
    plans = set()
    for _ in range(4 * workers):
        told = json.loads(proxy.ask(talk(120, UNKNOWN), "/inspect" + CHAT, headers=headers).body)
        told.pop("learned", None)
        plans.add(json.dumps(told, sort_keys=True).encode())
    return plans


@pytest.mark.parametrize("checks", [True, False])
def test_S2_a_key_with_forty_cookies_and_organisations_changes_nothing_for_a_stranger(
    checks: bool, workers: int
) -> None:
    """Usage doubled, then a quarter lower, then halved; at an upstream that checks keys, and at one that takes any."""
    factor, stranger = {"now": 1.0}, {"authorization": "Bearer sk-victim", "x-plimsoll-window": "7000"}
    script = usage_of(factor, ("sk-attacker", "sk-victim") if checks else ())
    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        assert proxy.ask(talk(2), headers={"authorization": "Bearer sk-wrong"}).status == (401 if checks else 200)
        before = plan_of(proxy, stranger, workers)
        assert len(before) == 1
        for factor["now"] in (2.0, 0.75, 0.5):
            for number in range(40 * workers):
                names = {"cookie": f"a={number % 40}", "openai-organization": f"org-{number % 40}"}
                more = {"x-api-key": f"sk-{number}"} if number % 2 else {}
                assert proxy.ask(talk(30, UNKNOWN), headers={**ATTACKER, **names, **more}).status == 200
            assert plan_of(proxy, stranger, workers) == before


def test_S2_invented_keys_at_an_upstream_that_takes_any_change_nothing_for_a_stranger(workers: int) -> None:
    factor, stranger = {"now": 2.0}, {"authorization": "Bearer sk-victim", "x-plimsoll-window": "7000"}
    with upstream(usage_of(factor)) as up, running(up.url, workers=workers) as proxy:
        before = plan_of(proxy, stranger, workers)
        for number in range(12):
            for _ in range(7 * workers):
                proxy.ask(talk(30, UNKNOWN), headers={"authorization": f"Bearer sk-{number}"})
        assert plan_of(proxy, stranger, workers) == before and len(before) == 1


def test_S2_a_callers_own_answers_correct_its_counts_and_are_called_calibrated_after_several() -> None:
    with upstream(usage_of({"now": 2.0})) as up, running(up.url) as proxy:
        qualities, counts = [], []
        for _ in range(9):
            told = proxy.ask(talk(30, UNKNOWN), headers=ATTACKER)
            qualities.append(told.headers["x-plimsoll-count"])
            counts.append(int(told.headers["x-plimsoll-tokens"]))
        assert qualities == ["estimated"] * 6 + ["calibrated"] * 3
        assert counts[-1] == pytest.approx(2 * size(talk(30)), rel=0.04)
