"""The simulated Responses API over ASGI: replies, stored responses, refusals; its counts are the proxy's own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from proxy.simulator.openai_responses.counting import count_prompt
from tests.simulator.test_app import ResponseReader, exchange

PATH = "/v1/responses"
ASKED = {"role": "user", "content": "How deep may she lie?"}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA" + "x" * 1500}
CALLS = [{"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": '{"a": 1}'} for i in range(2)]
OUTPUTS = [{"type": "function_call_output", "call_id": f"c{i}", "output": "six metres"} for i in range(2)]


def ask(app: Simulator, path: str = PATH, **fields: Any) -> ResponseReader:
    body = msgspec.json.encode({"model": "gpt-5", "input": "hello", **fields})
    return asyncio.run(exchange(app, path=path, body=body))


def refused(reader: ResponseReader) -> tuple[int, Any, Any]:
    return reader.status, reader.json["error"]["code"], reader.json["error"]["param"]


@pytest.mark.parametrize("base", ["/v1/responses", "/openai/v1/responses", "/openai/responses"])
def test_every_path_replies_counts_and_compacts(base: str) -> None:
    app = simulator()
    assert ask(app, base).json["status"] == "completed"
    assert ask(app, base + "/input_tokens").json["input_tokens"] == count_prompt({"model": "gpt-5", "input": "hello"})
    compacted = ask(app, base + "/compact", input=[ASKED, *CALLS, *OUTPUTS]).json["output"]
    assert compacted[0] == ASKED and [item["type"] for item in compacted[1:]] == ["compaction"]
    assert ask(app, base + "/resp_1").status == 404


def test_a_response_goes_on_from_one_that_was_stored() -> None:
    app = simulator()
    first = ask(app, input=[ASKED]).json
    then = ask(app, previous_response_id=first["id"]).json["usage"]["input_tokens"]
    whole = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert then == whole + count_prompt({"model": "gpt-5", "input": "hello"})
    unstored = ask(app, input=[ASKED, ASKED], store=False).json
    again = ask(app, previous_response_id=unstored["id"])
    assert refused(again) == (400, "previous_response_not_found", "previous_response_id")


def test_a_prompt_that_is_too_long_is_refused_as_each_provider_does_it() -> None:
    app = simulator(SimulatorConfig(window=50, provider="openai"))
    long = "word " * 100
    assert refused(ask(app, input=long)) == (400, "context_length_exceeded", "input")
    stream = ask(app, input=long, stream=True)
    assert stream.status == 200 and b"event: response.created" in stream.body
    assert stream.body.rstrip().split(b"event: ")[-1].startswith(b"response.failed")
    assert ask(app, input="hi", max_output_tokens=4000).status == 200  # the reply is not counted
    assert ask(app, "/v1/responses/input_tokens", input=long).status == 200
    other = simulator(SimulatorConfig(window=50, provider="vllm"))
    assert ask(other, input=long, stream=True).status == 400 and ask(other, max_output_tokens=60).status == 400


def test_a_stream_is_one_and_what_is_wrong_is_refused() -> None:
    app = simulator(SimulatorConfig(text="a b", count=lambda body: 7))
    assert ask(app, stream=True).body.count(b"event: response.output_text.delta") == 2
    assert ask(app).json["usage"]["input_tokens"] == 7
    assert refused(ask(app, input=[*CALLS])) == (400, None, "input")


def test_a_long_prompt_is_counted_beside_the_loop() -> None:
    app = simulator(SimulatorConfig(window=10**6))
    assert ask(app, input="word " * 20_000).json["usage"]["input_tokens"] > 20_000


def test_a_refusal_in_a_stream_has_three_shapes() -> None:
    for kind, place in (("response.failed", ("response", "error")), ("error", ()), ("error.nested", ("error",))):
        app = simulator(SimulatorConfig(window=50, provider="openai", refusal_event=kind))
        last = ask(app, input="word " * 100, stream=True, background=True).body.rstrip().split(b"\n\n")
        assert [event.splitlines()[0] for event in last[:3]] == [
            b"event: response.created",
            b"event: response.queued",
            b"event: response.in_progress",
        ]
        name, data = last[3].splitlines()
        assert name == b"event: " + kind.removesuffix(".nested").encode()
        found = msgspec.json.decode(data.removeprefix(b"data: "))
        for key in place:
            found = found[key]
        assert found["code"] == "context_length_exceeded" and found["message"].startswith("Your input exceeds the")


def test_a_server_that_truncates_says_nothing_of_it() -> None:
    app = simulator(SimulatorConfig(window=50, truncates=True))
    assert ask(app, input="word " * 100).json["usage"]["input_tokens"] == 25
    assert ask(app).json["usage"]["input_tokens"] == count_prompt({"model": "gpt-5", "input": "hello"})


def test_a_gateway_may_change_the_status_of_a_refusal() -> None:
    for status in (413, 502):
        app = simulator(SimulatorConfig(window=50, provider="openai", refusal_status=status))
        assert refused(ask(app, input="word " * 100)) == (status, "context_length_exceeded", "input")
        assert ask(app).status == 200


def test_a_server_may_forget_what_a_request_goes_on_from() -> None:
    app = simulator(SimulatorConfig(forgets=True))
    assert ask(app, previous_response_id="resp_1").json["usage"] == ask(app).json["usage"]


def test_the_server_drops_the_first_items_where_the_request_says_so() -> None:
    app = simulator(SimulatorConfig(window=50, provider="openai"))
    long = [{"role": "user", "content": "word " * 60}, ASKED]
    assert ask(app, input=long).status == 400
    shorter = ask(app, input=long, truncation="auto")
    assert shorter.json["usage"]["input_tokens"] == count_prompt({"model": "gpt-5", "input": [ASKED]})
    assert ask(app, input="word " * 100, truncation="auto").status == 400  # the last item stays


def test_the_server_compacts_where_the_request_says_so() -> None:
    app = simulator(SimulatorConfig(window=1_500, provider="openai"))
    asked: dict[str, Any] = {
        "input": "word " * 3_000,
        "context_management": [{"type": "compaction", "compact_threshold": 1_000}],
    }
    found = ask(app, **asked).json
    assert [item["type"] for item in found["output"]] == ["compaction", "message"]
    again = ask(app, input=[found["output"][0], ASKED])
    assert again.status == 200 and again.json["usage"]["input_tokens"] < 1_000
    assert [item["type"] for item in ask(app, **{**asked, "input": "x"}).json["output"]] == ["message"]


def test_what_another_owner_encrypted_is_refused() -> None:
    fields: dict[str, Any] = {"model": "sim-reasons", "include": ["reasoning.encrypted_content"], "store": False}
    one = simulator()
    output = ask(one, **fields).json["output"]
    assert ask(one, input=[*output, ASKED], **fields).status == 200
    other = ask(simulator(SimulatorConfig(owner="another")), input=[*output, ASKED], **fields)
    assert refused(other) == (400, "invalid_encrypted_content", None)
