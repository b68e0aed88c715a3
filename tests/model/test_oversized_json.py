from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import oversized_json

TEXTS = st.lists(st.sampled_from(["a", "\\", '"', "\n", "é", "好", "😀", " ", "\\\\", "word ", "u0041"])).map("".join)


@given(st.lists(TEXTS, max_size=5), st.booleans(), st.sampled_from([1, 3, 16, oversized_json.STRETCH]))
def test_strings_are_found_where_they_stand(texts: list[str], escaped: bool, stretch: int) -> None:
    raw = json.dumps(texts, ensure_ascii=escaped).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oversized_json, "STRETCH", stretch)
        assert [json.loads(b'"%b"' % raw[start:end]) for start, end in oversized_json.strings(raw)] == texts


def test_a_string_that_does_not_end_is_none() -> None:
    assert list(oversized_json.strings(b'{"a": "b\\"')) == [(2, 3)]
    assert list(oversized_json.strings(b'"\\')) == [] == list(oversized_json.strings(b""))


@given(TEXTS.filter(bool), st.integers(0, 300), st.booleans())
def test_head_cut_and_tail_are_the_text(text: str, most: int, escaped: bool) -> None:
    text = text * (3 * oversized_json.SHORTEST // len(text) + 1)
    raw = json.dumps({"content": text, "role": "user"}, ensure_ascii=escaped).encode()
    gone = oversized_json.cuts(raw, most)
    short = json.loads(oversized_json.without(raw, gone))
    assert (
        len(gone) == 1
        and len(oversized_json.without(raw, gone)) < 2 * oversized_json.SHORTEST
        and short["role"] == "user"
    )
    head, _, rest = short["content"].partition(" [… ")
    tail = rest.partition(" bytes left out …] ")[2]
    assert head + "".join(oversized_json.pieces(raw, gone[0])) + tail == text


def test_the_longest_give_way_first_and_short_ones_never() -> None:
    raw = json.dumps(["a" * 300_000, "b" * 200_000, "c" * 60_000]).encode()
    assert len(oversized_json.without(raw, oversized_json.cuts(raw, 400_000))) < 400_100
    assert len(oversized_json.cuts(raw, 400_000)) == 1 and len(oversized_json.cuts(raw, 0)) == 2
    assert oversized_json.cuts(raw, 600_000) == []


def test_data_stays_but_where_only_its_beginning_matters() -> None:
    url = "data:image/png;base64," + "A" * 200_000
    raw = json.dumps({"url": url, "data": "B" * 200_000, "text": "c" * 200_000}, separators=(",", ":")).encode()
    assert [raw[start : start + 1] for start, _ in oversized_json.cuts(raw, 0)] == [b"c"]
    image, _ = oversized_json.cuts(raw, 0, images=True)
    assert oversized_json.is_image(raw, image) and raw[image[0] : image[0] + 1] == b"A"


@given(
    st.recursive(st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)),
    st.sampled_from([1, 16, oversized_json.STRETCH]),
)
def test_no_fewer_values_are_counted_than_there_are(value: object, stretch: int) -> None:
    raw = json.dumps(value).encode()

    def count(found: object) -> int:
        inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        return 1 + sum(map(count, inner))

    assert oversized_json.signs(raw) + 1 >= count(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oversized_json, "STRETCH", stretch)
        for most in {0, oversized_json.signs(raw) // 2, max(0, oversized_json.signs(raw) - 1)}:
            assert oversized_json.values(raw, most) + 1 >= min(count(value), most + 2)


def test_what_stands_in_strings_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = json.dumps({"content": "a, b, [c], {d}" * 1_000}).encode()
    assert oversized_json.signs(raw) > 4_000 and oversized_json.values(raw, 100) < 10
    assert oversized_json.values(b"[" + b"[]," * 1_000 + b"0]", 100) > 100
    for stretch in (16, oversized_json.STRETCH):  # shorter and longer than its strings
        monkeypatch.setattr(oversized_json, "STRETCH", stretch)
        assert oversized_json.values(b"[" + b'"a, b, c, and d",' * 99 + b'{"e": "f"}]', 300) in range(100, 210)


@pytest.mark.parametrize("key", ["role", "name", "x" * 40])
def test_a_long_string_where_no_text_stands_is_strange(key: str) -> None:
    assert oversized_json.strange(json.dumps({key: "a" * 5_000_000}).encode())
    assert oversized_json.strange(json.dumps([{key: "a" * 1_500_000}] * 3).encode())
    assert not oversized_json.strange(json.dumps([{key: "a" * 1_500_000}, {key: "a" * 1_000_000}] * 2).encode())
    assert not oversized_json.strange(json.dumps({"content": "a" * 2_000_000, key: "a"}).encode())
    assert oversized_json.strange(json.dumps({"a" * 5_000_000: 1}).encode())


@pytest.mark.parametrize("key", ["prompt", "suffix", "system", "instructions", "input"])
def test_a_long_text_that_is_a_field_of_a_request_is_not_strange_and_is_left_out_of_an_outline(key: str) -> None:
    raw = json.dumps({"model": "m", key: "words " * (oversized_json.LONGEST // 6)}).encode()
    made = oversized_json.outline(raw)
    assert not oversized_json.strange(raw) and made is not None and len(made.text) < 1_000
    head = msgspec.json.decode(made.text, type=dict[str, msgspec.Raw])
    assert bytes(made.whole(head[key])) == bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[key])


def test_signs_are_found_across_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized_json, "SLICE", 64)
    monkeypatch.setattr(oversized_json, "OUTSIZE", 100)
    for before in range(50, 80):
        raw = b'"' + b"a" * before + b"image_url" + b"b" * 100 + b'"'
        assert oversized_json.find(raw, b"image_url") == before + 1 and oversized_json.count(raw, b"a") == before + 1
        assert oversized_json.holds(msgspec.Raw(raw), [b"image_url"]) and not oversized_json.holds(
            msgspec.Raw(raw), [b"video"]
        )
        assert oversized_json.copy(msgspec.Raw(raw)) == raw
    assert oversized_json.find(raw, b"video") == -1


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 4), st.sampled_from(["words, ", '\\"', "é好", "\\\\"]), st.booleans())
def test_an_outline_stands_for_the_whole(count: int, said: str, spaced: bool) -> None:
    long = said * ((oversized_json.LONGEST >> 1) // len(said))
    messages = [{"role": "user", "content": text} for text in (long, "short", long, "x" * 5_000)[:count]]
    told = {"model": "m" * 6_000, "messages": messages * 2, "tools": [{"description": "d" * 9_000}], "n": 1}
    raw = json.dumps(told, separators=(", ", " : ") if spaced else (",", ":"), ensure_ascii=False).encode()
    made = oversized_json.outline(raw)
    assert (made is None) == (len(raw) <= oversized_json.LONGEST)
    if made is not None:
        head = msgspec.json.decode(made.text, type=dict[str, msgspec.Raw])
        assert len(made.text) < 50_000 and bytes(head["model"]) == b'"%b"' % (b"m" * 6_000)
        whole = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        assert {key: bytes(made.whole(value)) for key, value in head.items()} == {k: bytes(v) for k, v in whole.items()}
        each = msgspec.json.decode(head["messages"], type=list[msgspec.Raw])
        apart = msgspec.json.decode(whole["messages"], type=list[msgspec.Raw])
        assert [bytes(made.whole(value)) for value in each] == [bytes(value) for value in apart]
        assert made.whole(made.text) == raw
