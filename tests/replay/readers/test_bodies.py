"""Plain bodies, and lines of batches."""

from __future__ import annotations

import pytest

from tests.replay.readers.reading import request, skipped, survives


@pytest.mark.parametrize(
    "sent",
    [
        b'{"model": "gpt-4o", "messages": []}',
        b'{"model": "gpt-4o", "input": [{"role": "user", "content": "x"}]}',
        b'{"model": "text-embedding-3-small", "input": "x"}',
        b'{"model": "gpt-3.5-turbo-instruct", "prompt": "x"}',
        b'{"model": "claude-sonnet-4-5", "system": "x", "messages": []}',
        b'{"model": "llama3", "messages": [], "options": {"num_ctx": 4096}}',
    ],
)
def test_a_body_is_taken_as_it_is(sent: bytes) -> None:
    assert request("bodies", sent).body == sent


def test_a_line_of_a_batch_has_its_path_and_its_body() -> None:
    found = request(
        "bodies", b'{"custom_id":"1","method":"POST","url":"/v1/responses","body":{"model":"m", "input":1}}'
    )
    assert (found.body, found.path) == (b'{"model":"m", "input":1}', "/v1/responses")
    assert skipped("bodies", {"custom_id": "1", "url": "", "body": 7}) == ["a line of a batch without a body"]


def test_other_json_is_told() -> None:
    assert skipped("bodies", {"weather": "rain"}) == ["JSON of no format that is known"]


def test_wrong_types_are_survived() -> None:
    survives("bodies", {"custom_id": "1", "method": "POST", "url": "/v1/x", "body": {"model": "m"}})
    survives("bodies", {"model": "m", "messages": [], "system": "", "tools": [], "options": {}})
