"""Plain bodies of requests, of any API; also as OpenAI's Batch API has them.

Batch, "Prepare your batch file": a line has `custom_id`, `method`, `url` and `body`.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.apis import apis
from proxy.model.lenient_json import RawFields, raw_fields
from proxy.replay.recorded import EachEntry, Found, Reader, Recorded, Skipped
from proxy.replay.values import of, text


def recognises(fields: RawFields) -> bool:
    """Whether it may be the body of a request."""
    return True


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """One body."""
    if {"custom_id", "url", "body"} <= fields.keys():
        if raw_fields(fields["body"]):
            yield Recorded(bytes(fields["body"]), path=text(of(fields, "url")))
        else:
            yield Skipped("a line of a batch without a body")
    elif any(api.request.recognises(fields) for api in apis()):
        yield Recorded(entry)
    else:
        yield Skipped("JSON of no format that is known")


READER = Reader("bodies", recognises, lambda: EachEntry(read), rank=9)
