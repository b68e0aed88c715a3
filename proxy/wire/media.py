"""Media in lists of content parts: a text in their place, or nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.model.conversation import NotEditable
from proxy.model.lenient_json import RAWS
from proxy.wire import cache_marks
from proxy.wire.openai import breakpoints

MARKS = (cache_marks.KEY, breakpoints.KEY)  # what a provider caches ends at a part, whatever that is
NOTHING_LEFT = "nothing else is in the message"

_PARTS = msgspec.json.Decoder(list[msgspec.Raw])


def without_media(content: msgspec.Raw, texts: Mapping[int, str], kind: str) -> msgspec.Raw:
    """The JSON of a list of content parts with a text, a part of the type `kind`, in place of the parts at some places;
    without those whose text is empty. The others keep their bytes. Raises `NotEditable` if none would be left.
    """
    parts: list[object] = []
    for place, part in enumerate(_PARTS.decode(content)):
        text = texts.get(place)
        if text is None:
            parts.append(part)
        elif text:
            marks = {key: raw for key, raw in RAWS.decode(part).items() if key in MARKS}
            parts.append({"type": kind, "text": text, **marks})
    if not parts:
        raise NotEditable(NOTHING_LEFT)
    return msgspec.Raw(msgspec.json.encode(parts))
