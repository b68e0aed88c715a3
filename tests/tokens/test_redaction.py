"""A redacted body says nothing of what the client wrote, has its structure, and costs as much."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model.image_size import size_of
from proxy.tokens import redaction
from proxy.tokens.encodings import Encoding, encoding
from proxy.tokens.redaction import MAX_UNIT, WORDS, Redactor, redactors
from proxy.tokens.redaction_vocabulary import FIELDS, NUMBERS

O200K, CL100K = encoding("o200k_base"), encoding("cl100k_base")
REDACTORS = {one.name: Redactor(b"key", one) for one in (O200K, CL100K)}
REDACTOR = REDACTORS["o200k_base"]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXTS = (
    "Hello world, this is a test: don't panic! What's THAT?",
    "def get_user_name(self, user_id: int = 42) -> str:\n\treturn self._names[user_id]  # see HTTPServer.do_GET\n",
    '{"path": "C:\\\\new\\\\file.txt", "ok": true, "none": [null,false], "text": "a\\nbcd\\u4f60\\u597d"}',
    "日本語のテキスト、123円。 Grüße aus Köln, señor! emoji 🙂🙂 bar 👩‍👩‍👧 हिन्दी पाठ",
    '     1→package main\n     2→\n     3→import (\n     4→\t"context"\n',
    "“Quoted” — don’t… ┌─┐ │ ✓ done │ 12→text •",
    "a" * 300 + " " * 200 + "\n\n\n" + "x" * 70,
    "",
    "\n",
    "...",
)


def redacted(body: Any) -> Any:
    return json.loads(REDACTOR.body(json.dumps(body).encode()))


@pytest.mark.parametrize("name", REDACTORS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_costs_what_it_cost_and_keeps_its_signs(name: str, text: str) -> None:
    made = REDACTORS[name].text(text)
    assert encoding(name).count(made) == encoding(name).count(text)
    assert [c for c in made if c in '{}[]()"\n\t'] == [c for c in text if c in '{}[]()"\n\t']


def test_where_no_word_has_a_token_to_spare_a_text_may_cost_one_more() -> None:
    text = "https://example.com/path/of?query=some&page=1#part <a href='there'>link</a> 1,234.56 -7 3.14"
    assert 0 <= O200K.count(REDACTOR.text(text)) - O200K.count(text) <= 1


WORDS_OF_TEXTS = sorted({word for text in TEXTS for word in text.replace("_", " ").split() if len(word) > 3})


def test_no_word_stays() -> None:
    for word in WORDS_OF_TEXTS:
        if word.isalpha():
            assert word not in REDACTOR.text(f"say {word} and {word}s")


def test_no_word_of_the_vocabulary_becomes_itself() -> None:
    REDACTOR.text("word")
    for before in ("", " ", "_"):
        for word in REDACTOR._pool(before)[:WORDS]:
            assert REDACTOR._unit(before, word.removeprefix(before), " ") != (word,)


def test_no_number_becomes_itself() -> None:
    for number in range(1, 2000):
        made = REDACTOR._digits(str(number))
        assert made != str(number) and len(made) == len(str(number)) and made[0] != "0"
    assert REDACTOR._digits("0") == "0" and REDACTOR._digits("007")[0] == "0"


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_costs_nearly_what_it_cost(text: str) -> None:
    """Arbitrary characters are split into tokens in ways that depend on their neighbours."""
    made = REDACTOR.text(text)
    assert abs(O200K.count(made) - O200K.count(text)) <= 1 + O200K.count(text) // 20
    assert all(c.isascii() or c in "«»·" or "\u2010" <= c <= "\u2718" for c in made)


def test_the_same_words_become_the_same_under_one_key_only() -> None:
    other, same = Redactor(b"other", O200K), Redactor(b"key", O200K)
    text = "one fish two fish red fish"
    made = REDACTOR.text(text).split()
    assert made[1] == made[3] == made[5] and made[0] != made[2]
    assert same.text(text) == REDACTOR.text(text) != other.text(text)


def test_a_history_that_grows_keeps_its_beginning() -> None:
    messages = [{"role": "user", "content": f"Turn {n} about the harbour, " * 9} for n in range(5)]
    assert redacted({"messages": messages})["messages"][:4] == redacted({"messages": messages[:4]})["messages"]


def test_json_in_a_text_stays_json() -> None:
    text = json.dumps({"path": '/a\n"b"\t\\n', "count": 12, "rate": 0.5, "all": True, "none": None, "x": ["é🙂", {}]})
    made = json.loads(REDACTOR.text(text))
    assert [type(value) for value in made.values()] == [str, int, float, bool, type(None), list]
    assert made != json.loads(text)


def test_characters_in_escapes_are_others() -> None:
    made = REDACTOR.text('{"a": "\\ud83d\\ude42 \\u00e9t\\u00e9 \\udbff"}')
    assert "\\ud83d\\ude42" not in made and "\\u00e9" not in made
    assert len(json.loads(made)[next(iter(json.loads(made)))].encode("utf-16", "surrogatepass")) > 0


def test_fields_roles_and_types_stay_and_names_of_tools_and_arguments_do_not() -> None:
    schema = {
        "type": "object",
        "properties": {"harbour": {"$ref": "#/$defs/Port"}, "type": {"type": "string", "enum": ["pilot"]}},
        "required": ["harbour", "type"],
        "$defs": {"Port": {"type": "string", "description": "Of a port.", "maxLength": 40}},
    }
    body = {
        "model": "gpt-4o",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "pilot", "content": [{"type": "text", "text": "user"}]}],
        "tools": [{"type": "function", "function": {"name": "call_pilot", "parameters": schema}}],
        "tool_choice": "required",
    }
    made = redacted(body)
    assert (made["model"], made["max_tokens"], made["stream"]) == ("gpt-4o", 100, True)
    assert made["tool_choice"] == "required" and made.keys() == body.keys()
    (message,) = made["messages"]
    assert message["role"] != "pilot" and message["content"] != [{"type": "text", "text": "user"}]
    assert message["content"][0]["type"] == "text"
    function = made["tools"][0]["function"]
    parameters = function["parameters"]
    (port,) = parameters["$defs"]
    harbour, kind = parameters["properties"]
    assert kind == "type" and parameters["required"] == [harbour, "type"]
    assert parameters["properties"][harbour]["$ref"] == f"#/$defs/{port}"
    assert parameters["$defs"][port]["maxLength"] == 40
    for word in ("harbour", "pilot", "Port", "port"):
        assert word not in json.dumps(made)


CANARIES = (
    "zanzibar",
    "Zanzibar's harbour",
    "https://zanzibar.example/?q=zanzibar",
    "data:zanzibar/zanzibar;base64,zanzibar",
    "user_zanzibar_20250101",
    '{"zanzibar": "zanzibar\\nzanzibar"}',
    "call_zanzibar",
    "#/$defs/zanzibar",
)


@pytest.mark.parametrize("canary", CANARIES)
def test_no_field_keeps_a_word_of_a_client(canary: str) -> None:
    """Also where the field is an API's own, and whatever is in it."""
    for field in FIELDS | {"zanzibar"}:
        for value in (canary, [canary], {"type": canary}, [{field: canary, canary: field}]):
            made = json.dumps(redacted({field: value} if field != "model" else {"messages": {field: value}}))
            assert "zanzibar" not in made.lower(), (field, value, made)


def test_no_field_but_a_setting_keeps_a_number_of_a_client() -> None:
    for field in FIELDS - NUMBERS:
        assert "7319467" not in json.dumps(redacted({"x": {field: [7319467, {"y": -7319467.5}]}})), field


def test_a_model_elsewhere_is_a_word_of_the_client() -> None:
    assert "zanzibar" not in json.dumps(redacted({"model": "gpt-4o", "metadata": {"model": "zanzibar"}}))
    assert redacted({"model": {"name": "zanzibar"}}) != {"model": {"name": "zanzibar"}}
    for text in ("my name is zanzibar", "zanzibar" * 20):
        assert "zanzibar" not in redacted({"model": text})["model"]
    assert redacted({"model": "ft:gpt-4o-mini:acme/x@1"}) == {"model": "ft:gpt-4o-mini:acme/x@1"}


def test_a_description_is_counted_behind_a_space() -> None:
    for text in ("Unfortunately", "The pilot's harbour.", ", late", " spaced", ""):
        made = redacted({"description": text})["description"]
        assert O200K.count(" " + made) == O200K.count(" " + text)


def test_types_of_tools_keep_their_dates() -> None:
    assert redacted({"tools": [{"type": "web_search_20250305", "name": "x"}]})["tools"][0]["type"] == (
        "web_search_20250305"
    )


def test_pairs_of_calls_and_results_stay_pairs() -> None:
    ids = [f"call_{n}" for n in range(300)] + ["toolu_01A", "mine"]
    made = [redacted({"id": one, "tool_call_id": one, "tool_use_id": one, "call_id": one}) for one in ids]
    assert all(len(set(one.values())) == 1 for one in made)
    assert len({one["id"] for one in made}) == len(ids)
    assert made[0]["id"].startswith("call_") and made[-2]["id"].startswith("toolu_") and made[-1]["id"] != "mine"


def test_numbers_are_others_but_for_settings() -> None:
    made = redacted({"temperature": 0.5, "metadata": {"age": 41, "rate": -1.25, "on": True, "none": None}})
    assert made["temperature"] == 0.5
    age, rate, on, none = made["metadata"].values()
    assert age != 41 and 10 <= age <= 99 and isinstance(age, int)
    assert rate != -1.25 and rate < 0 and (on, none) == (True, None)


def test_tokens_of_a_prompt_are_others() -> None:
    made = redacted({"model": "m", "prompt": [[791, 4062], [14198]]})["prompt"]
    assert [len(one) for one in made] == [2, 1] and made != [[791, 4062], [14198]]


def test_an_image_is_another_of_its_size() -> None:
    url = f"data:image/png;base64,{PIXEL}"
    made = redacted({"image_url": {"url": url, "detail": "low"}, "source": {"type": "base64", "data": PIXEL}})
    assert size_of(made["image_url"]["url"]) == size_of(url) == (1, 1)
    assert size_of(f"data:image/png;base64,{made['source']['data']}") == (1, 1)
    assert made["image_url"]["detail"] == "low"
    assert len(made["image_url"]["url"]) == len(url) and PIXEL[60:] not in json.dumps(made)


@pytest.mark.parametrize(
    ("url", "start"),
    [
        ("data:application/pdf;base64," + "QUJD" * 50, "data:application/pdf;base64,"),
        ("data:zanzibar/zanzibar;base64," + "QUJD" * 50, "data:application/octet-stream;base64,"),
        ("data:zanzibar," + "QUJD" * 50, ""),
        ("data:" + "zanzibar" * 40 + ";base64," + "QUJD" * 50, ""),
    ],
)
def test_data_keeps_its_length_and_a_known_type(url: str, start: str) -> None:
    made = redacted({"url": url})["url"]
    assert made.startswith(start) and "zanzibar" not in made and "QUJD" not in made
    assert len(made.removeprefix(start)) == len(url if not start else url.partition(",")[2])


def test_encrypted_content_keeps_its_length() -> None:
    made = redacted({"encrypted_content": "gAAAA" * 100, "signature": "short"})
    assert len(made["encrypted_content"]) == 500 and "gAAAA" not in made["encrypted_content"]
    assert made["signature"] != "short"


def test_an_address_stays_one() -> None:
    made = redacted({"url": "https://zanzibar.example/harbour.png"})["url"]
    assert made.startswith("https://") and "zanzibar" not in made


def test_two_names_with_one_replacement_stay_two_fields() -> None:
    REDACTOR.text("word")
    names = {word.strip(): number for number, word in enumerate(REDACTOR._pool(" ")[:300])}
    assert len(redacted({"input": names})["input"]) == 300


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a":"\\ud800"}', b"[" * 5000])
def test_what_cannot_be_read_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        REDACTOR.body(body)


def test_a_long_text_is_redacted_once() -> None:
    redactor, text = Redactor(b"key", O200K), "a word and another " * 50
    assert redactor.text(text) is redactor.text(text)
    assert len(text) > MAX_UNIT


def text_of(texts: list[str], ranks: list[int]) -> bytes:
    return texts[ranks[0]].encode()


def test_a_small_vocabulary_still_has_words() -> None:
    """An encoding of a user's may have no words behind most signs."""

    texts = [f"{a}{b}x" for a in "abcde" for b in "abcde"]
    for words in (texts, []):
        small = Encoding("small", lambda text: [0] * len(text.split()), partial(text_of, words))
        made = Redactor(b"key", small).text("some (words) here-and there_too")
        assert "words" not in made and "(" in made


def test_each_model_has_the_redactor_of_its_encoding() -> None:
    asked: list[str] = []

    def of(model: str) -> Any:
        asked.append(model)
        return CL100K if model == "gpt-4" else O200K

    redact = redactors(b"key", of, lambda model, caller: f"{caller}-{model[:3]}")
    body = b'{"model":"x","messages":[{"role":"user","content":"The harbour pilot is late."}]}'
    assert redact(body, "gpt-4o", "a") == redact(body, "gpt-5", "a")
    assert redact(body, "gpt-4o", "a") != redact(body, "gpt-4", "a")
    assert asked == ["gpt-4o", "gpt-5", "gpt-4o", "gpt-4"]
    assert json.loads(redact(body, "gpt-4", "a"))["model"] == "a-x"


def test_two_callers_redactions_of_the_same_words_differ() -> None:
    """Also of ids, numbers and data; of one caller they stay equal, whatever others sent between."""
    said = {"role": "user", "content": "Okafor 4711 lives in the harbour, with a pilot named Okafor. " * 5}
    body = json.dumps(
        {"messages": [said], "user": "okafor-4711", "id": "call_1", "n": 1, "b": [4711, "x" * 80]}
    ).encode()
    one, other = REDACTOR.of("a"), REDACTOR.of("b")
    first, second = one.body(body), other.body(body)
    assert first != second and one.body(body) == first == REDACTOR.of("a").body(body)
    made, others = json.loads(first), json.loads(second)
    assert made["user"] != others["user"] and made["id"] != others["id"]
    words = [text["messages"][0]["content"].split() for text in (made, others)]
    assert sum(a == b for a, b in zip(*words, strict=False)) < len(words[0]) / 20
    longer = json.loads(one.body(json.dumps({"messages": [said, said]}).encode()))
    assert longer["messages"] == [made["messages"][0]] * 2


def test_a_text_that_costs_less_gets_further_words_and_one_that_costs_more_loses_some() -> None:
    pieces: list[tuple[str, ...]] = [("(",), (" pilot",), ("harbour", "_late", "_again"), (")",)]
    assert REDACTOR._correct(pieces, 2) and len(pieces[1]) == 3
    assert REDACTOR._correct(pieces, -3) and [len(piece) for piece in pieces] == [1, 1, 2, 1]
    assert REDACTOR._correct(pieces, -2) and [len(piece) for piece in pieces] == [1, 0, 1, 1]
    assert not REDACTOR._correct([("(",)], 1) and not REDACTOR._correct([("(",)], -1)


def test_a_text_that_cannot_be_corrected_is_redacted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "MAX_CORRECTIONS", 0)
    assert "harbour" not in Redactor(b"key", O200K).text("the harbour")
