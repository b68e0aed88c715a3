"""Names of keys are known in every spelling; names that only look like them are not."""

from __future__ import annotations

import pytest

from proxy.wire.key_names import ENDINGS, NAMES, STEMS, has_headers, is_harmless_header, is_key, is_key_in_query
from tests.wire.key_spellings import HARMLESS_NAMES, KEY_NAMES


@pytest.mark.parametrize("name", KEY_NAMES)
def test_a_name_of_a_key_is_one_in_any_spelling(name: str) -> None:
    words = name.replace("-", "_").split("_")
    camel = words[0].lower() + "".join(word.capitalize() for word in words[1:])
    for spelling in (name, name.upper(), name.lower(), name.replace("_", "-"), camel, f"{name}_2", " ".join(words)):
        assert is_key(spelling), spelling


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_a_name_that_only_looks_like_one_is_none(name: str) -> None:
    for spelling in (name, name.upper(), name.replace("_", "-")):
        assert not is_key(spelling), spelling


def test_there_are_forty_of_each() -> None:
    assert len(set(KEY_NAMES)) >= 40 and len(set(HARMLESS_NAMES)) >= 40


def test_every_name_has_a_stem_in_one_piece() -> None:
    for name in (*ENDINGS, *NAMES):
        assert any(stem in name for stem in STEMS), name
        assert is_key(name), name


def test_a_name_is_looked_at_from_its_end_however_long_it_is() -> None:
    assert is_key("x" * 100_000 + "_api_key") and not is_key("api_key_" + "x" * 100_000)


def test_a_letter_that_is_no_letter_of_a_name_makes_none() -> None:
    assert not is_key("to\u212aen") and not is_key("")


def test_a_query_has_names_of_its_own() -> None:
    assert all(map(is_key_in_query, ("key", "KEY", "sig", "X-Amz-Signature", "api_key", "access_token")))
    assert not any(map(is_key_in_query, ("keys", "sort_key", "q", "page_token", "signal")))


def test_fields_of_headers_are_known_and_their_harmless_names() -> None:
    assert all(map(has_headers, ("headers", "extra_headers", "defaultHeaders", "HTTP_HEADERS")))
    assert not has_headers("header_rows")
    assert is_harmless_header("Content-Type") and not is_harmless_header("X-Content")
