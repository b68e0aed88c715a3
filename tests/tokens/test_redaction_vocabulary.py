"""What a redacted body keeps are words of APIs: fields that are settings, and values from lists."""

from __future__ import annotations

from proxy.tokens.redaction_vocabulary import CHOICES, DATA, DESCRIPTIONS, FIELDS, IDS, MEDIA_TYPES, NUMBERS, VALUES


def test_every_field_with_a_meaning_keeps_its_name() -> None:
    for fields in (CHOICES, NUMBERS, DESCRIPTIONS, IDS - {"user_id", "item_id", "response_id"}):
        assert fields - FIELDS <= {"value", "stop_reason", "display"}


def test_no_field_of_texts_keeps_a_value() -> None:
    texts = {"content", "text", "input", "output", "arguments", "instructions", "name", "description", "prompt"}
    assert not texts & (CHOICES | NUMBERS | IDS | DATA)
    assert texts <= FIELDS


def test_media_types_are_values() -> None:
    assert {"image/png", "application/pdf"} <= MEDIA_TYPES < VALUES
