"""The id that an upstream gives a response, in any API: it names it in its log and its support."""

from __future__ import annotations

import re

from proxy.model.lenient_json import raw_fields, raw_value

# Where it stands: in the response or an event itself, or in the object that an event reports.
HOLDERS = ("message", "response")
KEYS = ("id", "responseId")
ID = re.compile(r"[\x21-\x7e]{1,128}")


def response_id(data: bytes) -> str:
    """The id in a complete response, or in the data of an event; empty if there is none. Never raises."""
    fields = raw_fields(data)
    for holder in (fields, *(raw_fields(fields[key]) for key in HOLDERS if key in fields)):
        for found in (raw_value(holder[key]) for key in KEYS if key in holder):
            if isinstance(found, str) and ID.fullmatch(found):
                return found
    return ""
