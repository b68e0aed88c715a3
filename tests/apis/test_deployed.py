"""An API on the path of a deployment: planned for what runs there, sent as the client wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.deployed import deployed
from proxy.apis.openai_chat import API
from proxy.fit.plan import plan
from proxy.model.scan import PrefixDigest
from proxy.model.structs import replace
from proxy.wire.scan import NotUnderstood
from tests.makers import facts, ladder

HERE = deployed(API, "gpt-4")


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, **fields}).encode()


@pytest.mark.parametrize("sent", [body(), body(model="billing"), b" " + body(), body(note='"model"')])
def test_the_model_that_runs_is_planned_for_and_the_body_keeps_its_own_or_none(sent: bytes) -> None:
    assert HERE.request.scan(sent).model == HERE.request.parse(sent).model == "gpt-4"
    prompt = HERE.request.parse(sent)
    made = plan(prompt, ladder(), facts(1000))
    written = HERE.request.render(prompt, replace(made, draft=replace(made.draft, reply=5)))
    assert json.loads(written) == {**json.loads(sent), "max_tokens": 5} and prompt.placed


def test_what_the_api_does_not_understand_is_not_understood() -> None:
    for sent in (b"", b"{}", b"[1]", b'{"model": 1}'):
        with pytest.raises(NotUnderstood):
            HERE.request.scan(sent)
        with pytest.raises(NotUnderstood):
            HERE.request.parse(sent)


def test_all_else_is_that_of_the_api() -> None:
    assert HERE.name == "chat" and HERE.paths == API.paths and HERE.response.error_body == API.response.error_body
    assert HERE.request.known_prefix(b"", HERE.request.scan(body()), PrefixDigest(0, 0, 0, (), None)) is None
