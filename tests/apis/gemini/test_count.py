"""A chat request as Gemini counts it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.gemini.count import body
from proxy.wire.counters import NotCountable
from tests.makers import assistant, prompt, system, tool_round, user

SEARCH = {"name": "search", "description": "Searches.", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": SEARCH}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def made(*messages: dict[str, Any], **head: Any) -> dict[str, Any]:
    sent = body("models/gemini-2.5-pro", prompt(messages, **head).head)
    found: dict[str, Any] = json.loads(sent)["generateContentRequest"]
    assert found.pop("model") == "models/gemini-2.5-pro"
    return found


def test_turns_and_instructions_have_their_places() -> None:
    told = {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]}
    assert made(system("Be brief."), told, user("Hello"), assistant("Hi"), {"role": "assistant", "content": None}) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": ""}]},
        ],
    }


def test_calls_and_results_keep_their_names_and_tools_their_schemas() -> None:
    found = made(user("a"), *tool_round("1", "found", arguments='{"q": "x"}'), tools=[TOOL])
    assert found["contents"][1:] == [
        {"role": "model", "parts": [{"functionCall": {"name": "search", "args": {"q": "x"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "search", "response": {"result": "found"}}}]},
    ]
    schema = {"name": "search", "description": "Searches.", "parametersJsonSchema": {"type": "object"}}
    assert found["tools"] == [{"functionDeclarations": [schema]}]


def test_arguments_that_are_no_object_and_results_of_nobody_are_counted_too() -> None:
    stray = {"role": "tool", "tool_call_id": "?", "content": "c"}
    found = made(user("a"), *tool_round("1", "b", arguments="[1"), stray)
    assert found["contents"][1]["parts"][0]["functionCall"]["args"] == {"text": "[1"}
    assert found["contents"][3]["parts"][0]["functionResponse"]["name"] == "unknown"


def test_an_image_goes_along_with_its_data() -> None:
    found = made({"role": "user", "content": [{"type": "text", "text": "?"}, PIXEL]})
    assert found["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


@pytest.mark.parametrize(
    "head",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"messages": [{"role": "user", "content": [7]}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [7]},
        {"messages": 7},
        {},
        {"messages": [user("a")], "tools": [{"type": "web_search"}]},
        {"messages": [user("a")], "tools": 7},
    ],
)
def test_what_has_no_place_in_a_count_is_not_counted(head: dict[str, Any]) -> None:
    with pytest.raises(NotCountable):
        body("gemini-2.5-pro", {key: json.dumps(value).encode() for key, value in head.items()})
