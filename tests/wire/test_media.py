"""Media in lists of content parts."""

from __future__ import annotations

import msgspec
import pytest

from proxy.model.conversation import NotEditable
from proxy.wire.media import without_media

CONTENT = msgspec.Raw(rb'[{"type":"a", "x":1.50},{"type":"b","cache_control": {"type":"ephemeral"},"y":2},"\u00e9"]')


def test_a_text_takes_the_place_of_a_part_and_its_mark_and_the_others_keep_their_bytes() -> None:
    found = bytes(without_media(CONTENT, {1: "gone"}, "text"))
    made = b'{"type":"text","text":"gone","cache_control":{"type":"ephemeral"}}'
    assert found == rb'[{"type":"a", "x":1.50},%b,"\u00e9"]' % made


def test_without_a_text_the_part_is_gone_but_never_the_last() -> None:
    assert (
        bytes(without_media(CONTENT, {0: "", 2: ""}, "text"))
        == b'[{"type":"b","cache_control": {"type":"ephemeral"},"y":2}]'
    )
    with pytest.raises(NotEditable):
        without_media(CONTENT, dict.fromkeys(range(3), ""), "text")
