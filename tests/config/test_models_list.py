"""Lists of models: read, shaped and written."""

from __future__ import annotations

import json

import msgspec
import pytest

from proxy.apis.anthropic_messages.server import MODELS as ANTHROPIC
from proxy.config.models_list import (
    allowed_only,
    distinct,
    entries_of,
    entry_for,
    named,
    one_list,
    read_list,
    shaped,
    with_window,
)
from proxy.wire.openai.server import MODELS as OPENAI


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"data": {}}', b'{"models": []}', b'"\xff"', b"[" * 9_000])
def test_what_is_no_list_is_none(body: bytes) -> None:
    assert read_list(body) is None and entries_of(read_list(body)) == []


def test_entries_without_a_name_are_left_out() -> None:
    found = read_list(b'{"object": "list", "data": [{"id": "a", "x": 1}, {"id": 1}, 2, {"name": "b"}]}')
    assert entries_of(found) == [{"id": "a", "x": 1}]


def test_an_entry_gets_what_clients_of_its_shape_require() -> None:
    assert entry_for("a", "local", OPENAI) == {"id": "a", "object": "model", "created": 0, "owned_by": "local"}
    made = entry_for("a", "local", ANTHROPIC)
    assert (made["type"], made["id"], made["display_name"]) == ("model", "a", "a") and made["created_at"]
    own = {"id": "a", "owned_by": "me", "x": 1}
    assert shaped(own, "local", OPENAI) == {"id": "a", "object": "model", "created": 0, "owned_by": "me", "x": 1}


def test_a_window_stands_where_clients_look_for_it() -> None:
    assert with_window({"id": "a", "context_length": 1}, 9, None, OPENAI) == {
        "id": "a",
        "context_window": 9,
        "context_length": 9,
        "max_model_len": 9,
        "max_context_length": 9,
    }
    assert with_window({"id": "a"}, 9, 3, ANTHROPIC) == {"id": "a", "max_input_tokens": 9, "max_tokens": 3}
    assert with_window({"id": "a"}, 9, 3, OPENAI)["max_completion_tokens"] == 3


def test_a_list_keeps_what_it_has_besides_its_entries() -> None:
    found = read_list(b'{"object": "list", "extra": 1, "data": []}')
    assert json.loads(one_list(found, [{"id": "a"}], OPENAI)) == {"object": "list", "extra": 1, "data": [{"id": "a"}]}
    assert json.loads(one_list(None, [], OPENAI)) == {"object": "list", "data": []}
    assert json.loads(one_list(None, [{"id": "a"}, {"id": "b"}], ANTHROPIC)) == {
        "data": [{"id": "a"}, {"id": "b"}],
        "first_id": "a",
        "last_id": "b",
        "has_more": False,
    }
    assert json.loads(one_list(None, [], ANTHROPIC))["first_id"] is None


def test_of_two_entries_with_one_name_the_first_stays() -> None:
    assert distinct([{"id": "a", "x": 1}, {"id": "b"}, {"id": "a", "x": 2}]) == [{"id": "a", "x": 1}, {"id": "b"}]


@pytest.mark.parametrize("entry", [None, 3, [], {}, {"id": 7}, {"size": 1}, {"name": None}])
def test_an_entry_without_a_name_is_shown_to_nobody_who_may_not_see_all(entry: object) -> None:
    body = msgspec.json.encode({"data": [entry, {"id": "a"}, {"id": "b"}]})
    assert msgspec.json.decode(allowed_only(body, lambda name: name == "a", ())) == {"data": [{"id": "a"}]}


@pytest.mark.parametrize("name", ["models/a", "publishers/google/models/a", "a"])
def test_a_name_is_the_models_wherever_it_stands(name: str) -> None:
    assert named({"name": name}) == named({"id": name}) == named({"slug": name, "x": 1}) == "a"
