"""The mock that is made from the anthropic package: its answers are values of the types that the package returns."""

from __future__ import annotations

import json
from typing import Any, Literal, Optional, Union

import pytest

from tests.conformance.anthropic_mock import NOTHING, answer, answers, value

pytest.importorskip("anthropic", reason="of the dev group: make sure that it is installed")
API_MD = """
- <code title="post /v1/messages">client.messages.<a href="./x.py">create</a>(\\*\\*<a href="src/p.py">params</a>) -> \
<a href="./src/anthropic/types/message.py">Message</a></code>
- <code title="get /v1/models/{model_id}">client.models.<a href="./x.py">retrieve</a>(model_id) -> \
<a href="./src/anthropic/types/model_info.py">ModelInfo</a></code>
- <code title="get /v1/models">client.beta.models.<a href="./x.py">list</a>() -> \
<a href="./src/anthropic/types/beta/beta_model_info.py">SyncPage[BetaModelInfo]</a></code>
- <code title="get /v1/files/{file_id}/content">client.files.<a href="./x.py">download</a>() -> \
BinaryAPIResponse</code>
- <code title="get /v1/files/all/content">client.files.<a href="./x.py">all</a>() -> \
<a href="./src/anthropic/types/model_info.py">ModelInfo</a></code>
"""


def test_every_endpoint_of_the_document_has_an_answer() -> None:
    found = {(method, path.pattern, beta): told for (method, path, beta), told in answers(API_MD).items()}
    assert {(method, beta) for method, _, beta in found} == {("POST", False), ("GET", False), ("GET", True)}
    assert NOTHING in found.values()
    first = next(told for (_, path, _), told in found.items() if "content" in path)
    assert first != NOTHING  # the path without a parameter is tried first
    pages = [json.loads(told) for (_, _, beta), (_, told) in found.items() if beta]
    assert pages[0]["data"][0]["type"] == "model" and pages[0]["has_more"] is False


def test_an_answer_is_a_value_of_its_type() -> None:
    from anthropic.types import Message

    kind, told = answer("anthropic.types.message", "Message")
    assert kind == "application/json"
    assert Message.model_validate_json(told).role == "assistant"
    assert answer("anthropic.types.message", "Optional[Message]")[1] == b"null"
    kind, told = answer("anthropic.types.model_info", "JSONLDecoder[ModelInfo]")
    assert kind == "application/x-jsonl" and told.endswith(b"\n")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str, "x"),
        (Literal["a", "b"], "a"),
        (list[int], [0]),
        (dict[str, bool], {"x": True}),
        (Optional[str], None),  # noqa: UP045 - as the package writes it
        (Union[int, str], 0),  # noqa: UP007
        (int | None, None),
        (object, {}),
        (type("Unknown", (), {}), {}),
    ],
)
def test_values_of_plain_types(kind: Any, expected: Any) -> None:
    assert value(kind) == expected
