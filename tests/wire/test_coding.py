"""Which content codings are read, and what takes them off."""

from __future__ import annotations

import gzip
import zlib

import pytest

from proxy.wire.coding import CODED, IDENTITY, KNOWN, beginning, coding_of, decoded, decompressor

TEXT = b"some text"
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
RAW_DEFLATE = RAW.compress(TEXT) + RAW.flush()


def test_the_coding_of_a_message_is_that_of_its_header_in_lower_case() -> None:
    assert coding_of([(b"content-encoding", b" BR ")]) == "br" and coding_of([(b"x", b"gzip")]) == ""
    assert coding_of([(b"content-encoding", b"\xff")]) not in KNOWN
    assert frozenset(("", "identity", "gzip", "x-gzip", "deflate")) == KNOWN


@pytest.mark.parametrize("coding", sorted(KNOWN))
def test_what_is_coded_in_a_way_that_we_know_is_decoded(coding: str) -> None:
    made = {"deflate": zlib.compress(TEXT), **dict.fromkeys(IDENTITY, TEXT)}.get(coding) or gzip.compress(TEXT)
    assert decoded(made, coding, 9) == TEXT == beginning(made, coding, 99) and beginning(made, coding, 4) == TEXT[:4]


def test_a_body_that_needs_no_decoding_is_the_same_one() -> None:
    assert all(decoded(TEXT, coding, 1) is TEXT for coding in IDENTITY)


def test_an_answer_may_omit_the_header_of_deflate_and_a_request_may_not() -> None:
    assert beginning(RAW_DEFLATE, "deflate", 99) == TEXT and decoded(RAW_DEFLATE, "deflate", 99) is None
    assert decoded(gzip.compress(TEXT), "deflate", 99) == TEXT


@pytest.mark.parametrize(("coding", "body"), [("br", b"x"), ("gzip", b"x" * 20), ("deflate", b"\xff" * 20)])
def test_what_cannot_be_decoded_is_none(coding: str, body: bytes) -> None:
    assert decoded(body, coding, 99) is None and beginning(body, coding, 99) is None


def test_a_body_that_is_cut_short_or_too_long_is_none_as_a_whole() -> None:
    packed = gzip.compress(TEXT)
    assert decoded(packed[:-5], "gzip", 99) is None and decoded(packed, "gzip", 4) is None
    assert beginning(packed[:-5], "gzip", 99) == TEXT and beginning(b"", "deflate", 99) == b""


def test_what_is_not_coded_has_no_decompressor() -> None:
    assert CODED.isdisjoint(IDENTITY)
    with pytest.raises(KeyError):
        decompressor("identity")
