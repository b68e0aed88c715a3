"""What a strict upstream refuses in a request, and with which wording."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.check import validate
from proxy.simulator.openai_chat.validation import checks_for
from proxy.simulator.refusals import PROVIDERS

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
TOOLS = [{"type": "function", "function": {"name": "look"}}]


def said(body: dict[str, Any], provider: str = "vllm", **known: Any) -> str | None:
    found = validate(body, checks_for(provider, **known))
    return None if found is None else found.message


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
@pytest.mark.parametrize(
    "body",
    [
        chat(USER),
        chat(SYSTEM, USER, {"role": "assistant", "content": "Hi"}, USER, n=2, stream=True, stream_options={}),
        chat({"role": "developer", "content": [{"type": "text", "text": "Be"}]}, USER, max_completion_tokens=1),
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}),
        chat(USER, tools=TOOLS, tool_choice="auto"),
        chat(
            USER,
            {"role": "assistant", "function_call": {"name": "f"}},
            {"role": "function", "name": "f", "content": ""},
            USER,
        ),
    ],
)
def test_lawful_requests_have_nothing_said_of_them(provider: str, body: dict[str, Any]) -> None:
    assert said(body, provider) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": [USER]}, "you must provide a model parameter"),
        ({"model": "m"}, "Missing required parameter: 'messages'."),
        ({"model": "m", "messages": "x"}, "Invalid type for 'messages': expected an array of objects."),
        (chat("x"), "Invalid type for 'messages': expected an array of objects."),
        (chat(), "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array"),
        (chat({"role": "ai", "content": "x"}), "Invalid value: 'ai'. Supported values are: 'system', 'assistant',"),
        (chat({"content": "x"}), "Invalid value: 'None'. Supported values are"),
        (chat({"role": "user"}), "Invalid value for 'content': expected a string, got null."),
        (chat({"role": "user", "content": 7}), "Invalid type for 'messages[0].content'"),
        (chat({"role": "user", "content": []}), "Invalid 'messages[0].content': empty array."),
        (chat({"role": "user", "content": ""}), "messages: text content blocks must be non-empty"),
        (chat(USER, {"role": "assistant", "content": ""}), "messages: text content blocks must be non-empty"),
        (
            chat(USER, max_tokens=0),
            "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0",
        ),
        (chat(USER, max_completion_tokens=-5), "Invalid 'max_completion_tokens': integer below minimum value."),
        (chat(USER, max_tokens="many"), "Invalid type for 'max_tokens'"),
        (chat(USER, max_tokens=True), "Invalid type for 'max_tokens'"),
        (chat(USER, n=0), "Invalid 'n': integer below minimum value."),
        (chat(USER, n=129), "Invalid 'n': integer above maximum value. Expected a value <= 128."),
        (chat(USER, max_tokens=1, max_completion_tokens=1), "Setting 'max_tokens' and 'max_completion_tokens' at the"),
        (chat(USER, tools=[]), "Invalid 'tools': empty array."),
        (chat(USER, tool_choice="auto"), "Invalid value for 'tool_choice': 'tool_choice' is only allowed when"),
        (chat(USER, stream_options={}), "The 'stream_options' parameter is only allowed when 'stream' is enabled."),
    ],
)
def test_what_is_wrong_is_said_in_the_providers_words(body: dict[str, Any], message: str) -> None:
    assert (said(body) or "").startswith(message)


def test_a_reply_that_no_model_can_write_is_said_to_be_no_matter_of_the_window() -> None:
    assert said(chat(USER, max_tokens=4096), max_output=4096) is None
    assert said(chat(USER, max_tokens=4097), max_output=4096) == (
        "max_tokens is too large: 4097. This model supports at most 4096 completion tokens, whereas you provided 4097."
    )


def test_a_system_message_that_vanished_is_missed() -> None:
    assert said(chat(SYSTEM, USER), system="brief") is None
    assert said(chat({"role": "developer", "content": [{"text": "Be brief"}]}, USER), system="brief") is None
    assert said(chat(USER), system="brief") == "The system message is missing."
    assert said(chat({"role": "user", "content": "brief"}), system="brief") == "The system message is missing."


@pytest.mark.parametrize("model", ["o3-mini", "gpt-5", "gpt-5-mini-2025", "openai/o1"])
def test_reasoning_models_of_openai_take_one_limit_only(model: str) -> None:
    assert (said({"model": model, "messages": [USER], "max_tokens": 9}, "openai") or "").startswith(
        "Unsupported parameter: 'max_tokens' is not supported with this model."
    )
    assert said({"model": model, "messages": [USER], "max_completion_tokens": 9}, "openai") is None
    assert said({"model": "gpt-4o", "messages": [USER], "max_tokens": 9}, "openai") is None


def test_mistral_wants_the_last_word_to_be_the_users_or_a_tools() -> None:
    assistant = {"role": "assistant", "content": "Hi"}
    message = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
    assert said(chat(USER, assistant), "mistral") == message
    assert said(chat(USER, {**assistant, "prefix": True}), "mistral") is None
    assert said(chat(USER, assistant), "openai") is None


def test_a_server_of_models_wants_turns_where_the_template_does() -> None:
    told, call = {"role": "assistant", "content": "Hi"}, {"role": "assistant", "tool_calls": [{"id": "a"}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "1"}
    message = "Conversation roles must alternate user/assistant/user/assistant/..."

    def answer(provider: str, model: str, *messages: Any) -> str | None:
        return said({**chat(*messages), "model": model}, provider)

    for model in ("mistralai/Mistral-7B-Instruct-v0.3", "google/gemma-3-27b-it", "meta-llama/Llama-2-7b-chat-hf"):
        for wrong in ((USER, USER), (USER, told, told, USER), (told, USER)):
            assert answer("vllm", model, *wrong) == message
        for right in ((USER, told, USER), (USER, call, result, told, USER), (USER, call, result)):
            assert answer("vllm", model, *right) is None
            assert answer("sglang", model, {"role": "system", "content": "s"}, *right) is None
    assert answer("vllm", "qwen3", USER, USER) is None and answer("openai", "gemma-3", USER, USER) is None


def test_mistral_wants_no_user_directly_after_a_tool() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    body = chat(USER, call, {"role": "tool", "tool_call_id": "a", "content": "1"}, USER)
    assert said(body, "mistral") == "Unexpected role 'user' after role 'tool'"
    assert said(body, "openai") is None
