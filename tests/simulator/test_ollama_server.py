"""What the APIs of the simulated Ollama share."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from proxy.simulator.api import Held
from proxy.simulator.check import ApiError
from proxy.simulator.ollama_server import (
    BROKEN,
    COMMON,
    LOADED,
    check_image,
    check_types,
    failure,
    figures,
    line,
    load,
    posted,
    refusal,
    written,
)
from proxy.simulator.settings import RecordedRequest, SimulatorConfig


def test_an_error_is_a_text() -> None:
    assert failure(ApiError(503, "text", "kind", "code")).body() == b'{"error":"text"}'
    assert json.loads(BROKEN) == {"error": "an error was encountered while running the model"}


@pytest.mark.parametrize(
    ("method", "body", "status", "text"),
    [
        ("GET", b"{", 405, "405 method not allowed"),
        ("POST", b"{", 400, "invalid character in the request's body"),
        ("POST", b"{}", 400, "model is required"),
        ("POST", b'{"model": ""}', 400, "model is required"),
        ("POST", b'{"model": 1}', 400, "model is required"),
    ],
)
def test_what_no_api_takes(method: str, body: bytes, status: int, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        posted(RecordedRequest(method, "/api/x", b"", (), body))
    assert (caught.value.status, caught.value.message) == (status, text)


def test_a_model_is_loaded_with_the_window_that_the_request_asks_for_or_its_own() -> None:
    held: Held = defaultdict(dict)
    config = SimulatorConfig(window=100, windows={"b:1": 200})
    assert load({"model": "a", "options": {"num_ctx": 7}}, config, held) == 7
    assert held[LOADED] == {"a:latest": 7}
    assert load({"model": "a"}, config, held) == 100
    assert load({"model": "b:1", "options": None}, config, held) == 200
    assert held[LOADED] == {"a:latest": 100, "b:1": 200}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"stream": "yes"}, "field R.stream of type bool"),
        ({"options": {"num_ctx": "x"}}, "field R.options.num_ctx of type int"),
        ({"options": []}, "field R.options of type map[string]interface {}"),
        ({"keep_alive": []}, "field R.keep_alive of type string"),
    ],
)
def test_a_wrong_type_is_refused_in_the_words_of_gos_decoder(body: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_types(body, COMMON, "R")
    assert caught.value.message == f"json: cannot unmarshal value into Go struct {text}"


def test_an_image_is_base64() -> None:
    check_image("aGk=")
    for wrong in ("%", 7):
        with pytest.raises(ApiError):
            check_image(wrong)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, (("one", " two"), "stop")),
        ({"options": {"num_predict": 1}}, (("one",), "length")),
        ({"options": {"num_predict": -1}}, (("one", " two"), "stop")),
        ({"format": "json"}, (("{}",), "stop")),
        ({"format": {"type": "string"}}, (('"sim"',), "stop")),
    ],
)
def test_a_text_is_cut_to_its_limit_and_is_json_where_it_must(body: dict[str, Any], found: Any) -> None:
    assert written(body, "one two") == found


def test_figures_lines_and_the_runners_own_error() -> None:
    told = figures("stop", 5, 3)
    assert (told["done_reason"], told["prompt_eval_count"], told["eval_count"]) == ("stop", 5, 3)
    assert line({"a": 1}) == b'{"a":1}\n'
    assert json.loads(refusal(9, 5))["error"]["n_ctx"] == 5
