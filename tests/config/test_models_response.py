from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config.models_response import owner_from_models, window_from_models
from proxy.model.limits import Window


def told(row: dict[str, Any], model: str = "m-1") -> Window | None:
    listed = {"object": "list", "data": [{"id": "other", "context_length": 7}, {"id": "m-1", **row}]}
    return window_from_models(json.dumps(listed).encode(), model)


@pytest.mark.parametrize(
    "row",
    [
        {"max_model_len": 32768, "owned_by": "vllm"},
        {"context_length": 32768},
        {"context_window": 32768, "active": True},
        {"max_context_length": 32768, "capabilities": {"completion_chat": True}},
        {"meta": {"n_ctx_train": 32768, "n_params": 7_241_732_096}},
        {"meta": {"n_ctx_train": 131072, "n_ctx": 32768}},
        {"max_context_length": 131072, "loaded_context_length": 32768},
        {"context_length": None, "top_provider": {"context_length": 32768}},
        {"context_length": 131072, "top_provider": {"context_length": 32768}},
        {"capabilities": {"limits": {"max_context_window_tokens": 32768}}},
        {"providers": [{"context_length": 131072}, {"context_length": 32768}]},
        {"max_input_tokens": 32768},
        {"inputTokenLimit": 32768},
        {"context_size": "32768"},
        {"context_length": 32768.0},
    ],
)
def test_servers_call_the_window_by_many_names(row: dict[str, Any]) -> None:
    assert told(row) == Window(32768, source="upstream")


def test_bounds_on_prompt_and_reply_are_told_where_they_bind() -> None:
    row = {"context_window": 400_000, "max_prompt_tokens": 272_000, "max_completion_tokens": 128_000}
    assert told(row) == Window(400_000, 272_000, 128_000, "upstream")
    assert told({"context_window": 8192, "max_completion_tokens": 8192}) == Window(8192, source="upstream")


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"context_length": 0},
        {"context_length": -1},
        {"context_length": True},
        {"context_length": "much"},
        {"context_length": 10**12},
        {"context_length": 1.5},
        {"max_tokens": 4096},
        {"a": {"b": {"c": {"d": {"e": {"context_length": 5}}}}}},
    ],
)
def test_what_is_no_window_tells_nothing(row: dict[str, Any]) -> None:
    assert told(row) is None


@pytest.mark.parametrize("model", ["m-1", "M-1", "openai/m-1", "models/m-1", "m-1-2024-08-06"])
def test_the_model_is_found_under_any_form_of_its_name(model: str) -> None:
    assert told({"context_length": 32768}, model) == Window(32768, source="upstream")


def test_the_very_name_comes_before_its_other_forms() -> None:
    rows = [{"id": "host/m-1", "context_length": 1000}, {"id": "m-1", "context_length": 2000}]
    answer = json.dumps({"data": rows}).encode()
    assert window_from_models(answer, "m-1") == Window(2000, source="upstream")
    assert window_from_models(answer, "host/m-1") == Window(1000, source="upstream")


def test_a_row_of_that_name_that_does_not_say_is_passed_over() -> None:
    llama_cpp = {"models": [{"name": "m-1", "model": "m-1"}], "data": [{"id": "m-1", "meta": {"n_ctx_train": 4096}}]}
    assert window_from_models(json.dumps(llama_cpp).encode(), "m-1") == Window(4096, source="upstream")


def test_aliases_are_names_too() -> None:
    rows = [{"id": "mistral-large-2411", "aliases": ["mistral-big"], "max_context_length": 131072}, {"id": "x"}]
    assert window_from_models(json.dumps({"data": rows}).encode(), "mistral-big") == Window(131072, source="upstream")


@pytest.mark.parametrize("wrap", [lambda row: row, lambda row: [row], lambda row: {"data": [row]}])
def test_one_model_alone_may_answer_and_a_server_of_one_model_means_it(wrap: Any) -> None:
    row = {"id": "/models/llama.gguf", "max_model_len": 4096}
    assert window_from_models(json.dumps(wrap(row)).encode(), "whatever") == Window(4096, source="upstream")


def test_a_model_that_is_not_in_the_list_is_not_known_from_it() -> None:
    assert told({"context_length": 32768}, "m-2") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"null",
        b"5",
        b'"x"',
        b"[1,2]",
        b'{"data": {}}',
        b'{"data": [1, null]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_list_of_models_tells_nothing(body: bytes) -> None:
    assert window_from_models(body, "m") is None


def test_a_server_of_one_model_may_list_it_in_either_list() -> None:
    """llama.cpp's, for clients of Ollama's API and of OpenAI's."""
    both: dict[str, list[Any]] = {"models": [{"name": "q.gguf"}], "data": [{"id": "q.gguf", "meta": {"n_ctx": 4096}}]}
    assert window_from_models(json.dumps(both).encode(), "anything") == Window(4096, source="upstream")
    more = {**both, "data": [*both["data"], {"id": "r.gguf", "meta": {"n_ctx": 2048}}]}
    assert window_from_models(json.dumps(more).encode(), "anything") is None


@pytest.mark.parametrize(
    ("listed", "owner"),
    [
        ([{"id": "m-1", "owned_by": "vllm"}, {"id": "x", "owned_by": "me"}], "vllm"),
        ([{"id": "m-1"}, {"id": "x", "owned_by": "me"}], ""),
        ([{"id": "m-1", "owned_by": "vllm"}, {"id": "m-1", "owned_by": "me"}], ""),
        ([{"id": "m-1", "owned_by": 7}], ""),
        ([{"id": "x", "owned_by": "a"}, {"id": "y", "owned_by": "b"}], ""),
        ([{"id": "x", "owned_by": "llamacpp"}], "llamacpp"),
        ([], ""),
    ],
)
def test_a_list_says_who_owns_a_model(listed: list[dict[str, Any]], owner: str) -> None:
    assert owner_from_models(json.dumps({"data": listed}).encode(), "m-1") == owner


def test_an_owner_that_is_no_text_is_none() -> None:
    listed = [{"id": "m-1", "owned_by": ["vllm"]}, {"id": "m-1", "owned_by": {"name": "vllm"}}, {"id": "m-1"}]
    assert owner_from_models(json.dumps({"data": listed}).encode(), "m-1") == ""


@pytest.mark.parametrize("body", [b"", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_list_names_no_owner(body: bytes) -> None:
    assert owner_from_models(body, "m-1") == ""
