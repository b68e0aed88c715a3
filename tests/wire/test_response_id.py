from __future__ import annotations

import pytest

from proxy.wire.response_id import response_id


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"id":"chatcmpl-1","choices":[{"message":{"tool_calls":[{"id":"call_1"}]}}]}', "chatcmpl-1"),
        (b'{"type":"message_start","message":{"id":"msg_1","content":[]}}', "msg_1"),
        (b'{"type":"response.created","response":{"id":"resp_1","output":[]}}', "resp_1"),
        (b'{"responseId":"abc","candidates":[]}', "abc"),
        (b'{"type":"content_block_start","content_block":{"id":"toolu_1"}}', ""),
        (b'{"id":7}', ""),
        (b'{"id":"two words"}', ""),
        (b'{"id":"%b"}' % (b"x" * 129), ""),
        (b"[DONE]", ""),
        (b'{"id":"cut', ""),
        (b"", ""),
    ],
)
def test_an_id_is_that_of_the_response_and_of_nothing_in_it(data: bytes, found: str) -> None:
    assert response_id(data) == found
