"""A body's fields as raw JSON, whatever the API: all values keep their bytes. It knows no key of any API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

import msgspec

from proxy.model import oversized_json
from proxy.model.lenient_json import RAWS, UNREADABLE, mapping, object_of, raw_value
from proxy.wire.controls import MESSAGE_KEY
from proxy.wire.scan import NULL, NotUnderstood, reason

PIN = "pin"
RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])
Fields = Mapping[str, msgspec.Raw]
Whole = Callable[[msgspec.Raw], msgspec.Raw | memoryview]  # the whole bytes of a value that an outline has shortened


def decoded(body: bytes) -> tuple[dict[str, msgspec.Raw], Whole]:
    """The fields of a body, in their order, and the function that returns a value's whole bytes. Very long texts of a
    large body are shortened in its fields. Raises one of `UNREADABLE`."""
    outline = oversized_json.outline(body)
    return RAWS.decode(body if outline is None else outline.text), itself if outline is None else outline.whole


def itself(raw: msgspec.Raw) -> msgspec.Raw:
    """The whole bytes of a value that is not shortened."""
    return raw


def copied(fields: Fields, whole: Whole, view: str | None = None) -> dict[str, bytes]:
    """The whole values as bytes; that of the field `view` as a view, so that no second copy of a long body is kept."""
    return {key: cast(bytes, whole(raw)) if key == view else bytes(whole(raw)) for key, raw in fields.items()}


def view_of(field: str, body: bytes) -> str | None:
    """The field that `copied` keeps as a view: `field` in a large body, else none."""
    return field if len(body) > oversized_json.OUTSIZE else None


def fields_of(body: bytes) -> dict[str, bytes]:
    """The fields of a body as raw JSON, in their order. Raises `NotUnderstood`."""
    try:
        return copied(*decoded(body))
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None


def without_fields(body: bytes, names: Collection[str]) -> bytes:
    """The body without the fields of these names. Raises `NotUnderstood`."""
    return object_of((key, raw) for key, raw in fields_of(body).items() if key not in names)


def without_message_key(
    body: bytes,
    field: str,
    listed: Callable[[msgspec.Raw], Sequence[msgspec.Raw]] = RAW_LIST.decode,
    first: Callable[[Fields], int] = lambda fields: 0,
) -> tuple[bytes, frozenset[int]]:
    """The body without `MESSAGE_KEY` in its messages, and the indices of the messages in which it is `{"pin": true}`.

    `listed` reads the messages in the value of `field`; `first` returns the index of the first of them. A body without
    the key is returned unchanged. Raises `NotUnderstood`.
    """
    try:
        head, whole = decoded(body)
        messages = [RAWS.decode(raw) for raw in listed(head.get(field, NULL))]
        if not any(MESSAGE_KEY in message for message in messages):
            return body, frozenset()
        values = [msgspec.json.decode(message.pop(MESSAGE_KEY, NULL)) for message in messages]
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    written = b",".join(object_of(copied(message, whole).items()) for message in messages)
    pins = frozenset(i for i, value in enumerate(values, first(head)) if mapping(value).get(PIN) is True)
    return object_of({**copied(head, whole), field: b"[" + written + b"]"}.items()), pins


def least_reply(raw: bytes | None, key: str) -> int:
    """The smallest reply limit, in tokens, that the budget under a `key` of a field allows: more than the budget
    (Anthropic's rule, also where its models are asked by chat completions)."""
    budget = None if raw is None else mapping(raw_value(msgspec.Raw(raw))).get(key)
    return budget + 1 if isinstance(budget, int) and budget > 0 else 0
