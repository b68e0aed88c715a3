"""A first look at a request: what it tells, what its bytes prove, and that what was read before is not read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.openai_chat.scan import ESCAPED, REWRITTEN, known_prefix, scan
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan
from proxy.wire.scan import LATEST, MAX_NUMBER, NotUnderstood
from tests.laws.cases import Case, cases
from tests.laws.dialects import CHAT
from tests.makers import assistant, body, tool_round, user

HELLO = [user("hello")]


def asking(**fields: Any) -> bytes:
    return body(HELLO, **fields)


def test_a_first_look_tells_the_model_and_what_the_reply_may_take() -> None:
    told = asking(max_tokens=5, max_completion_tokens=7, n=3, stream=True)
    found = scan(told)
    assert (found.model, found.reserve, found.stream, found.most) == ("gpt-4o", 7, True, len(told))
    plain = scan(asking(n=None, stream=None, max_tokens=None))
    assert (plain.reserve, plain.stream) == (None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        b"[]",
        b'{"messages":[]}',
        b'{"model":"m","messages":[7]}',
        b'{"model":"m","messages":[],"max_tokens":"many"}',
        b'{"model":"m","messages":[],"max_tokens":true}',
        b'{"model":"m","messages":[],"n":0}',
        b'{"model":"m","messages":[],"max_tokens":' + str(MAX_NUMBER + 1).encode() + b"}",
        b'{"model":"m","messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_first_look_at_what_is_no_request_says_so(wrong: bytes) -> None:
    with pytest.raises(NotUnderstood):
        scan(wrong)


@pytest.mark.parametrize(
    "fields",
    [
        {"web_search_options": {}},
        {"search_parameters": {"mode": "auto"}},
        {"plugins": [{"id": "web"}]},
        {"enable_search": True},
        {"prediction": {"type": "content", "content": "x"}},
        {"audio": {"voice": "alloy"}},
        {"modalities": ["text", "audio"]},
        {"tools": [{"type": "function", "function": {"parameters": {"$ref": "#/a"}}}]},
        {"response_format": {"json_schema": {"schema": {"$ref": "#/a"}}}},
    ],
)
def test_bytes_prove_nothing_where_something_hidden_may_cost(fields: dict[str, Any]) -> None:
    assert scan(asking(**fields)).most is None


@pytest.mark.parametrize("kind", ["image_url", "input_image", "video_url", "input_audio", "file", "document_url"])
def test_bytes_prove_nothing_beside_an_image_a_sound_or_a_file(kind: str) -> None:
    assert scan(body([{"role": "user", "content": [{"type": kind}]}])).most is None


def test_bytes_prove_nothing_beside_an_answer_that_was_spoken() -> None:
    assert scan(body([{"role": "assistant", "audio": {"id": "audio_1"}}])).most is None
    assert scan(body([{"role": "assistant", "content": "x", "audio": None}])).most is not None


def test_text_that_speaks_of_images_is_text() -> None:
    told = body([user('{"type": "image_url"}'), {"role": "user", "content": [{"type": "text", "text": "x"}]}])
    assert scan(told).most == len(told)


def test_what_is_written_anew_before_it_is_counted_may_cost_more_than_its_bytes() -> None:
    call, result = tool_round("1", "é", arguments='{"a": 1e15}')
    second_call, second = tool_round("2", "é")
    one = body([call, result])
    arguments = len(json.dumps(call["tool_calls"][0]))
    assert scan(one).most == len(one) + (REWRITTEN - 1) * arguments
    call["tool_calls"] += second_call["tool_calls"]
    both = body([call, result, second, user("é")])
    calls = sum(len(json.dumps(c)) for c in call["tool_calls"])
    results = 2 * len(json.dumps("é"))
    assert scan(both).most == len(both) + (REWRITTEN - 1) * calls + (ESCAPED - 1) * results
    old = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    assert scan(body([old])).most == len(body([old])) + len(json.dumps(old["function_call"]))


def marked(found: Scan, seed: int = 7) -> PrefixDigest:
    assert found.marks is not None
    marks = found.marks(seed)
    assert marks is not None
    return marks


def marks(*told: dict[str, Any], seed: int = 7, **fields: Any) -> list[int]:
    return list(marked(scan(body(told, **fields)), seed).latest)


def test_each_message_has_a_mark_of_itself_and_all_before_it() -> None:
    told = [{"role": "system", "content": "s"}, user("a"), *tool_round("c", "r"), assistant("b")]
    whole = marks(*told)
    assert len(set(whole)) == len(told) and marks(*told[:3]) == whole[:3]
    assert marks(*told, max_tokens=5, model="other") == whole and marks(*told, seed=8) != whole


@pytest.mark.parametrize(
    "other",
    [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "user", "content": "a", "name": "n"},
        {"role": "user", "content": "a", "refusal": "r"},
        {"role": "user", "content": "a", "tool_call_id": "n"},
        {"role": "user", "content": "a", "function_call": {"name": "n"}},
        {"role": "user", "content": "a", "tool_calls": [{"id": "n"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ],
)
def test_a_mark_tells_all_that_counts_in_a_message(other: dict[str, Any]) -> None:
    assert marks(other) != marks(user("a")) and marks(user("x"), other)[1] != marks(user("y"), other)[1]


def test_a_made_up_role_has_no_other_conversations_mark() -> None:
    forged = {"role": 'user"a"assistant', "content": "b"}
    assert marks(forged)[-1] != marks(user("a"), assistant("b"))[-1]


def test_there_are_no_marks_where_a_count_depends_on_more_than_what_stands_before() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    late = [user("a"), {"role": "system", "content": "s"}]
    assert scan(body([image])).marks is None and scan(body(late)).marks is None
    assert scan(body([late[1], late[1], late[0]])).marks is not None


def test_a_first_look_keeps_the_bytes_of_the_head_that_cost() -> None:
    several: list[dict[str, Any]] = [{}, {"tools": []}, {"tool_choice": "none"}, {"top_p": 1}]
    heads = [scan(asking(**fields)).head for fields in several]
    assert len(set(heads)) == 3 and heads[0] == heads[3]


@pytest.mark.parametrize("content", ['"hi"', '"plimsoll"', r'"say \"plimsoll\": 1"', '[{"type":"text","plimsoll":1}]'])
def test_a_request_without_our_key_has_none(content: str) -> None:
    assert not scan(
        b'{"plimsoll":1,"model":"m","messages":[{"role":"user","content":%s}]}' % content.encode()
    ).seen.keyed


# --- what was read before


def prefix(whole: bytes, known: KnownPrefix | None = None, seed: int = 7) -> KnownPrefix | None:
    seen = scan(whole, known)
    return known_prefix(whole, seen, marked(seen, seed))


def same(found: Scan, plain: Scan) -> None:
    """Two looks at one body say the same, however much of it was known."""
    for name in ("model", "reserve", "stream", "most", "head", "seen"):
        assert getattr(found, name) == getattr(plain, name), name
    assert (found.marks is None) == (plain.marks is None)
    if plain.marks is not None:
        ours, theirs = marked(found), marked(plain)
        assert (ours.seed, ours.first, ours.count, ours.latest) == (
            theirs.seed,
            theirs.first,
            theirs.count,
            theirs.latest,
        )


LONG = [{"role": "system", "content": "s"}, user("a"), *tool_round("c", "é"), assistant("b"), user("d")]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("order", [("messages", "model", "n"), ("model", "n", "messages")])
def test_of_a_conversation_that_grew_what_is_new_is_read(order: tuple[str, ...], indent: int | None) -> None:
    def sent(count: int) -> bytes:
        fields = {"model": "gpt-4o", "messages": LONG[:count], "n": 2}
        return json.dumps({key: fields[key] for key in order}, indent=indent).encode()

    known = None
    for count in range(1, len(LONG) + 1):
        found = scan(sent(count), known)
        same(found, scan(sent(count)))
        assert found.known is known and (known is None or found.new < len(sent(count)))
        known = prefix(sent(count), known)
        assert known is not None and known.seen.count == count
        assert sent(count)[: known.end].endswith(b"}") and json.loads(known.lead) == LONG[0]
    again = scan(sent(len(LONG)), known)
    same(again, scan(sent(len(LONG))))
    assert known_prefix(sent(len(LONG)), again, marked(again)) is None  # nothing is new in it


@given(cases(dialects=[CHAT]), st.data())
def test_however_a_conversation_grows_a_look_at_it_says_the_same(case: Case, data: st.DataObject) -> None:
    messages = [json.loads(m.raw) for m in case.prompt.messages]
    cut = data.draw(st.integers(1, len(messages)))
    first = scan(body(messages[:cut]))
    if first.marks is None:
        return
    known = known_prefix(body(messages[:cut]), first, marked(first))
    assert known is not None
    same(scan(body(messages), known), scan(body(messages)))


def test_under_another_seed_nothing_is_lost() -> None:
    known = prefix(body(LONG[:3]))
    found = scan(body(LONG), known)
    assert marked(found, seed=8).latest == marked(scan(body(LONG)), seed=8).latest
    again = known_prefix(body(LONG), found, marked(found, seed=8))
    assert again is not None and again.marks.seed == 8 and again.end > found.new


def test_only_the_latest_marks_are_kept() -> None:
    told = [user(str(i)) for i in range(LATEST + 9)]
    whole = marked(scan(body(told)))
    assert len(whole.latest) == LATEST and whole.count == len(told)
    known = prefix(body(told[:5]))
    assert marked(scan(body(told), known)).latest == whole.latest
    assert whole.first == marked(scan(body(told[:1]))).latest[0]


@pytest.mark.parametrize(
    "whole",
    [
        b'{"model":"m","metadata":{"messages":[{"role":"user"}]},"messages":[{"role":"user","content":"a"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"a","plimsoll":{"pin":true}}]}',
    ],
)
def test_where_it_is_not_certain_where_messages_stand_none_are_remembered(whole: bytes) -> None:
    assert prefix(whole) is None


@pytest.mark.parametrize(
    "rest",
    [
        b',{"role":"user","content":"b"}],"messages":[{"role":"user","content":"c"}]}',  # the last of two counts
        b',{"role":"user","content":"\\"messages\\" is "messages" "}]}',
        b"}",
        b' ,{"role":"user","content":7',
        b"",
    ],
)
def test_a_body_that_goes_on_oddly_is_read_whole(rest: bytes) -> None:
    start = b'{"model":"m","messages":[{"role":"user","content":"a"}'
    known = prefix(start + b"]}")
    assert known is not None and known.end == len(start)
    try:
        plain = scan(start + rest)
    except NotUnderstood as error:
        with pytest.raises(NotUnderstood, match=str(error).replace("(", r"\(").replace(")", r"\)").replace("$", r"\$")):
            scan(start + rest, known)
    else:
        same(scan(start + rest, known), plain)


def test_no_messages_have_no_marks() -> None:
    found = scan(b'{"model":"m","messages":[]}').marks
    assert found is not None and found(7) is None
