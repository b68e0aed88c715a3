"""The openai package's embeddings: the same through the proxy, split where they are too many, refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.test_openai_python import client
from tests.e2e.world import World, eventually, world

MODEL = "text-embedding-3-small"
MANY = [f"text {i}" for i in range(3000)]
ASKED: dict[str, dict[str, Any]] = {
    "text": {"input": "Hello"},
    "texts": {"input": ["Hello", "How deep?"], "dimensions": 8},
    "floats": {"input": ["Hello"], "encoding_format": "float"},
    "ids": {"input": [[9906], [1917, 0]]},
}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window_field="")) as made:
        yield made


def answer(url: str, tag: str = "", model: str = MODEL, **asked: Any) -> Any:
    with client(url, tag) as ai:
        return ai.embeddings.create(model=model, **{"dimensions": 4, **asked}).model_dump(warnings=False)


@pytest.mark.parametrize("name", ASKED)
def test_what_fits_is_the_same_through_the_proxy_byte_for_byte_and_is_counted(here: World, name: str) -> None:
    straight, through = (answer(url, name, **ASKED[name]) for url in here.ways)
    assert straight == through
    one, other = here.seen(name)
    assert (one.path, one.body) == (other.path, other.body)
    tokens = through["usage"]["prompt_tokens"]
    eventually(lambda: any(o.endpoint == "embeddings" and o.prompt == tokens for o in here.outcomes), 30)


@pytest.mark.parametrize("model", [MODEL, "unheard-of"])
@pytest.mark.parametrize("encoding", ["base64", "float"])
def test_more_inputs_than_one_request_takes_are_sent_in_pieces(here: World, model: str, encoding: Any) -> None:
    """For a model of OpenAI's the limit is known; for another one the refusal teaches it."""
    with pytest.raises(openai.BadRequestError):
        answer(here.straight, model=model, input=MANY)
    tag = f"many {model} {encoding}"
    found = answer(here.through, tag, model=model, input=MANY, encoding_format=encoding)
    assert [item["index"] for item in found["data"]] == list(range(3000))
    alone = answer(here.straight, model=model, input=MANY[2999], encoding_format=encoding)
    assert found["data"][2999]["embedding"] == alone["data"][0]["embedding"]
    sent = [len(request.json()["input"]) for request in here.seen(tag) if request.method == "POST"]
    assert sorted(sent)[:2] == [952, 2048] and found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"]


def test_more_tokens_than_one_request_takes_are_sent_in_pieces(here: World) -> None:
    asked = [[7] * 8000] * 38
    with pytest.raises(openai.BadRequestError):
        answer(here.straight, input=asked)
    with client(here.through, "sum") as ai:
        raw = ai.embeddings.with_raw_response.create(model=MODEL, input=asked, dimensions=4)
    assert len(raw.parse().data) == 38 and raw.parse().usage.prompt_tokens == 304_000
    assert raw.headers["x-plimsoll-steps"].startswith("split_request")
    assert sorted(len(request.json()["input"]) for request in here.seen("sum")) == [1, 37]


def test_U30_an_input_that_is_too_long_is_named_before_anything_is_sent(here: World) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        answer(here.through, "long", input=["a", "word " * 9000, "b"])
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input[1]")
    assert not here.seen("long")


def test_of_a_model_that_nobody_knows_the_upstream_decides(here: World) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        answer(here.through, model="nobody-knows", input=["a", "word " * 9000])
    assert "maximum context length is 8192" in refused.value.message


def test_U30_an_input_is_cut_at_its_end_where_a_rule_asks_for_it(tmp_path: Any) -> None:
    (tmp_path / "ladder.toml").write_text('[[step]]\nname = "truncate_inputs"\n')
    with world(SimulatorConfig(), PLIMSOLL_RULES=str(tmp_path)) as there:
        found = answer(there.through, "cut", input=["a", "word " * 9000])
        sent = there.seen("cut")[-1].json()["input"]
    assert len(found["data"]) == 2 and sent[0] == "a" and ("word " * 9000).startswith(sent[1])


@pytest.fixture
def one_pass() -> SimulatorConfig:
    """llama.cpp, which takes an input in one pass of 512 tokens, whatever its window."""
    return SimulatorConfig(provider="llamacpp", window_field="")


def test_an_input_that_one_pass_does_not_take_is_refused_in_the_words_of_its_server(one_pass: SimulatorConfig) -> None:
    said = "input (600 tokens) is too large to process. increase the physical batch size (current batch size: 512)"
    with world(one_pass) as there:
        for url in there.ways:
            with (
                pytest.raises(openai.InternalServerError) as refused,
                client(url, "pass").with_options(max_retries=0) as ai,
            ):
                ai.embeddings.create(model="bge-m3", input=[[7], [7] * 600])
            assert (refused.value.status_code, said in refused.value.message) == (500, True)
        first, second = (request for request in there.seen("pass") if request.method == "POST")
        assert first.body == second.body
        eventually(lambda: any("batch_size" in o.refusals for o in there.outcomes), 30)


def test_W23_it_is_cut_to_one_pass_where_a_rule_asks_for_it_and_the_next_at_once(
    one_pass: SimulatorConfig, tmp_path: Any
) -> None:
    (tmp_path / "ladder.toml").write_text('[[step]]\nname = "truncate_inputs"\n')
    with world(one_pass, PLIMSOLL_RULES=str(tmp_path)) as there:
        for tag, attempts in (("first", 2), ("second", 1)):
            found = answer(there.through, tag, model="bge-m3", input=[[7], [7] * 600])
            sent = [request.json()["input"] for request in there.seen(tag) if request.method == "POST"]
            assert len(found["data"]) == 2 and [inputs[0] for inputs in sent] == [[7]] * attempts
            assert 300 < len(sent[-1][1]) <= 512 and (attempts == 1 or sent[0][1] == [7] * 600)
