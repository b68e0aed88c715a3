"""What servers that people really run do: R3, R5, R9, and those that cut a prompt without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.harness import eventually, ok, running, upstream
from tests.recorder import EVENTS, Peer, Recorder, Request, answer, chunk

TRUNCATED = "x-plimsoll-truncated"
WORDS = "one two three four five six seven eight nine ten "
LLAMA_CPP_PYTHON = (
    "This model's maximum context length is 2048 tokens. However, you requested {} tokens. Please reduce."
)


def asked(words: int, model: str = "local-model", stream: bool = True, messages: int = 6) -> dict[str, Any]:
    """A conversation of about so many tokens."""
    each = (WORDS * (words // 10 // messages + 1)).strip()
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"{i}: {each}"} for i in range(messages - 1)]
    made = {"model": model, "messages": [*turns, {"role": "user", "content": "And now?"}]}
    return {**made, "stream": True, "stream_options": {"include_usage": True}} if stream else made


def tokens(request: Request) -> int:
    """What a prompt costs at the scripted upstreams: its words."""
    return len(request.body.split())


async def streams(peer: Peer, *texts: str) -> None:
    """A stream that says so much."""
    await peer.send(EVENTS)
    for text in texts:
        event = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
        await peer.send(chunk(b"data: " + json.dumps(event).encode() + b"\n\n"))
    await peer.send(chunk(b"data: [DONE]\n\n") + chunk(b""))


async def llama_cpp_python(request: Request, peer: Peer) -> None:
    """Over 2,048 words it answers streams with nothing at all, and tells why only where no stream is wanted."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[{"id":"local-model","object":"model","owned_by":"me"}]}'))
        return
    wants = json.loads(request.body)
    many = tokens(request)
    if wants["model"] == "flaky" and wants.get("stream"):
        await peer.send(EVENTS + chunk(b": ping\n\n") + chunk(b""))
    elif many > 2048 and wants.get("stream"):
        await peer.send(EVENTS + chunk(b""))
    elif many > 2048:
        error = {"message": LLAMA_CPP_PYTHON.format(many), "type": "invalid_request_error", "code": None}
        await peer.send(answer(json.dumps({"error": error}).encode(), b"400 Bad Request"))
    elif wants.get("stream"):
        await streams(peer, "all ", "good")
    else:
        await peer.send(ok(many))


@pytest.fixture
def python_server() -> Iterator[Recorder]:
    with upstream(llama_cpp_python) as recorder:
        yield recorder


def posts(there: Recorder) -> list[dict[str, Any]]:
    """The chats that came, as JSON."""
    return [json.loads(request.body) for request in there.requests if request.method == b"POST"]


def test_R3_an_empty_stream_is_asked_about_and_healed(python_server: Recorder, workers: int) -> None:
    with running(python_server.url, workers=workers) as proxy:
        got = proxy.ask(asked(3000))
        assert got.status == 200 and b"good" in got.body and got.body.endswith(b"data: [DONE]\n\n")
        first, second, third = posts(python_server)
        assert first["stream"] and first["stream_options"] and third["stream"] and third["stream_options"]
        assert "stream" not in second and "stream_options" not in second
        assert second["messages"] == first["messages"] != third["messages"]
        assert json.loads(proxy.log('"healed"')[-1])["status"] == 200


def test_R3_a_refusal_that_nothing_can_be_done_about_is_told(python_server: Recorder) -> None:
    """Better than an empty answer: what the server said where no stream was wanted."""
    with running(python_server.url) as proxy:
        schema = {"type": "object", "properties": {"choice": {"type": "string", "enum": [WORDS * 300]}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        got = proxy.ask({**asked(10), "tools": [tool]})
        assert got.status == 400 and "2048" in got.json["error"]["message"]
        assert len(posts(python_server)) <= 3


def test_R3_a_stream_that_is_empty_for_another_reason_stays_empty(python_server: Recorder) -> None:
    with running(python_server.url) as proxy:
        got = proxy.ask(asked(40, "flaky"))
        assert (got.status, got.body) == (200, b": ping\n\n")
        assert got.headers["content-type"] == "text/event-stream"
        assert len(posts(python_server)) == 2


def test_R3_a_request_that_surely_fits_is_sent_once(python_server: Recorder) -> None:
    with running(python_server.url) as proxy:

        async def empty(request: Request, peer: Peer) -> None:
            await peer.send(EVENTS + chunk(b""))

        python_server.script = empty
        assert proxy.ask(asked(40, "gpt-4o")).body == b""
        assert len(posts(python_server)) == 1


async def llama_cpp(request: Request, peer: Peer) -> None:
    """Lists its one model twice, under a name of its own."""
    if request.method == b"GET":
        listed = {
            "models": [{"name": "qwen.gguf", "model": "qwen.gguf", "capabilities": ["completion"], "details": {}}],
            "object": "list",
            "data": [{"id": "qwen.gguf", "object": "model", "meta": {"n_ctx_train": 32768, "n_ctx": 4096}}],
        }
        await peer.send(answer(json.dumps(listed).encode()))
    else:
        await peer.send(ok(tokens(request)))


def test_R5_a_server_of_one_model_tells_its_window_whatever_it_is_called(workers: int) -> None:
    with upstream(llama_cpp) as there, running(there.url, workers=workers) as proxy:
        assert proxy.ask(asked(6000, "whatever", stream=False)).status == 200
        (sent,) = posts(there)
        assert len(json.dumps(sent["messages"]).split()) < 4096  # cut before it was sent, for the list says so
        assert json.loads(proxy.log('"fitted"')[-1])["window"] == 4096


async def transformers(request: Request, peer: Peer) -> None:
    """Says what PyTorch says."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[]}'))
    elif tokens(request) > 1024:
        await peer.send(answer(b'{"detail":"index out of range in self"}', b"500 Internal Server Error"))
    else:
        await peer.send(ok(tokens(request)))


def test_R9_a_table_of_positions_that_is_too_short_is_a_refusal(workers: int) -> None:
    with upstream(transformers) as there, running(there.url, workers=workers) as proxy:
        got = proxy.ask(asked(1300, "gpt2-like", stream=False))
        assert got.status == 200, got.body
        eventually(lambda: proxy.metric("plimsoll_refusals_total", rule="position_table", healed="true") >= 1)


async def ollama(request: Request, peer: Peer) -> None:
    """Reads the last 2,048 words of a prompt, says so in its usage alone, and answers."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[]}'))
        return
    wants, read = json.loads(request.body), min(2048, tokens(request))
    usage = {"prompt_tokens": read, "completion_tokens": 1, "total_tokens": read + 1}
    if not wants.get("stream"):
        await peer.send(ok(read, model=wants["model"]))
        return
    last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
    await peer.send(EVENTS + chunk(b'data: {"choices":[{"index":0,"delta":{"content":"ok"}}]}\n\n'))
    await peer.send(chunk(b"data: " + json.dumps(last).encode() + b"\n\n") + chunk(b"data: [DONE]\n\n") + chunk(b""))


def test_a_prompt_that_the_server_cut_without_a_word_is_told(workers: int) -> None:
    with upstream(ollama) as there, running(there.url, workers=workers) as proxy:
        short = proxy.ask(asked(1000, "gpt-4o", stream=False))
        assert short.status == 200 and TRUNCATED not in short.headers
        assert proxy.ask(asked(8000, "gpt-4o")).status == 200  # a stream's headers are out before anybody knows
        count, found = 1, ""
        while not found and count < 200:  # until its count, which nobody waited for, is there in time
            count, found = count + 1, proxy.ask(asked(8000, "gpt-4o", stream=False)).headers.get(TRUNCATED, "")
        assert found == "2048"
        eventually(lambda: proxy.metric("plimsoll_truncated_prompts_total", model="gpt-4o") == count)
        eventually(lambda: len(proxy.log('"truncated":true')) == count)
        lines = [json.loads(line) for line in proxy.log('"truncated":true')]
        assert all(line["usage"] == 2048 < 0.6 * line["prompt_sent"] for line in lines)


def test_what_a_server_cuts_without_a_word_we_cut_with_sense_from_then_on(workers: int) -> None:
    """And no more, once it reads more; another caller's prompts go out as they are."""
    window = {"tokens": 2048}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"object":"list","data":[]}'))
        else:
            await peer.send(ok(min(window["tokens"], tokens(request))))

    long = asked(8000, "gpt-4o", stream=False)
    with upstream(script) as there, running(there.url, workers=workers, PLIMSOLL_PROBE_AFTER="2") as proxy:
        for count in range(60):
            proxy.ask(asked(8000 + 600 * (count % 3), "gpt-4o", stream=False))
            if tokens(there.requests[-1]) <= 2048:
                break
        assert 3 <= count < 59
        proxy.ask(long, key="sk-another")
        assert posts(there)[-1] == long
        window["tokens"] = 100_000

        def whole() -> bool:
            proxy.ask(long)
            return posts(there)[-1] == long

        eventually(whole, 30)  # the probe that PLIMSOLL_PROBE_AFTER allows
        if workers == 1:
            eventually(lambda: all(whole() for _ in range(3)))


@pytest.mark.parametrize("kind", ["whole messages are dropped", "what was in a cache is not reported"])
def test_figures_that_vary_teach_no_bound(kind: str) -> None:
    seen = {"count": 0}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"object":"list","data":[]}'))
            return
        seen["count"] += 1
        await peer.send(ok(2048 - 90 * (seen["count"] % 5) if "dropped" in kind else 1_200))

    with upstream(script) as there, running(there.url) as proxy:
        for turn in range(12):
            body = asked(6000 + (700 * (turn % 4) if "dropped" in kind else 1_150 * turn), "gpt-4o", stream=False)
            proxy.ask(body)
            assert posts(there)[-1] == body
