"""A completion's request as a Prompt, and a plan as its JSON again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_completions import API
from proxy.apis.openai_completions.request import (
    DEFAULT_REPLY,
    parse,
    render,
    scan,
    without_extension,
    without_stream,
)
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.conversation import HEAD, RULED, TAIL, Prompt
from proxy.model.limits import Window
from proxy.model.oversized_json import LONGEST
from proxy.model.plan import Facts, Plan
from proxy.model.scan import PrefixDigest
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from proxy.wire.scan import NotUnderstood
from tests.tokens.remembering import Remembering

LADDER = load_rules(None).ladders["default"]
LINES = "\n".join(f"Line {i}: vessel {i} carried {i * 7} tons of grain to port {i % 13}." for i in range(600))


def body(prompt: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "gpt-3.5-turbo-instruct", "prompt": prompt, **fields}).encode()


def planned(prompt: Prompt, window: int = 4097) -> Plan:
    return plan(prompt, LADDER, Facts(Window(window), meter_for(prompt, prompt.model, Remembering())))


def fitted(prompt: Any, window: int = 4097, **fields: Any) -> dict[str, Any]:
    """What would be sent; it fits."""
    read = parse(body(prompt, **fields))
    made = planned(read, window)
    assert made.changed and made.fits
    sent: dict[str, Any] = json.loads(render(read, made))
    again = planned(parse(json.dumps(sent).encode()), window)
    assert not again.changed and again.draft.prompt == made.draft.prompt
    return sent


def test_a_request_is_scanned_and_the_bytes_of_its_longest_prompt_bound_its_tokens() -> None:
    found = scan(body(["ab", "a much longer one"], max_tokens=7, stream=True, n=2))
    assert (found.model, found.reserve, found.stream) == ("gpt-3.5-turbo-instruct", 7, True)
    assert found.most == len('"a much longer one"') + len("null") and found.marks is None and found.seen.count == 2
    with_suffix = scan(body("ab", suffix="cdef")).most
    assert with_suffix == len('"ab"') + len('"cdef"')
    assert API.request.known_prefix(b"", found, PrefixDigest(0, 0, 0, (), None)) is None


@pytest.mark.parametrize(("limit", "reply"), [(None, DEFAULT_REPLY), (-1, DEFAULT_REPLY), (0, 0), (50, 50), (5.0, 5)])
def test_a_request_without_a_limit_gets_sixteen_tokens(limit: Any, reply: int) -> None:
    sent = body("a", max_tokens=limit)
    assert scan(sent).reserve == parse(sent).reply.limit == reply
    assert scan(body("a")).reserve == parse(body("a")).reply.limit == DEFAULT_REPLY


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[]",
        b'{"prompt": "a"}',
        b'{"model": "m"}',
        body(None),
        body([]),
        body([{"a": 1}]),
        body("a", max_tokens=0.5),
        body("a", max_tokens="x"),
    ],
)
def test_what_is_no_completion_is_not_understood(sent: bytes) -> None:
    with pytest.raises(NotUnderstood):
        scan(sent)
    with pytest.raises(NotUnderstood):
        parse(sent)


def test_several_prompts_with_one_suffix_or_no_answer_at_all_are_not_understood() -> None:
    with pytest.raises(NotUnderstood):
        parse(body(["a", "b"], suffix="c"))
    with pytest.raises(NotUnderstood):
        scan(body("a", n=0))


def test_each_prompt_is_a_message_and_several_have_the_window_to_themselves() -> None:
    one, several = parse(body("a")), parse(body(["a", "b c"]))
    assert [json.loads(m.raw) for m in several.messages] == ["a", "b c"] and several.form.apart and not one.form.apart
    assert one.form.texts and several.form.texts and all(m.pinned for m in several.messages)
    made = planned(several)
    assert made.draft.prompt == 2 and made.draft.billed == 3


def test_what_fits_is_written_as_it_came() -> None:
    sent = b'{ "prompt" : ["a" , "b"], "model": "gpt-3.5-turbo-instruct", "odd": 1.0 }'
    prompt = parse(sent)
    assert json.loads(render(prompt, planned(prompt))) == json.loads(sent)
    assert b'"prompt":["a" , "b"]' in render(prompt, planned(prompt))


def test_of_a_long_text_stay_what_bears_on_its_question_and_its_end() -> None:
    end = "\n\nQuestion: What did vessel number 333 carry?\nAnswer:"
    sent = fitted(LINES + end, max_tokens=100, seed=7)
    assert sent["prompt"].endswith(end) and "vessel 333 carried" in sent["prompt"] and "left out" in sent["prompt"]
    assert sent["max_tokens"] == 100 and sent["seed"] == 7


def test_of_several_prompts_only_those_that_are_too_long_are_shortened() -> None:
    sent = fitted([LINES, "hi", LINES[:9000], LINES + "x"], max_tokens=100)
    assert sent["prompt"][1:3] == ["hi", LINES[:9000]] and len(sent["prompt"]) == 4
    assert sent["prompt"][3].endswith(LINES[-500:] + "x") and len(sent["prompt"][0]) < len(LINES)


def test_code_around_a_gap_keeps_both_of_its_sides_and_gets_no_marker() -> None:
    code = "\n".join(f"def f{i}(x):\n    return x + {i}" for i in range(900))
    read = parse(body(code, suffix=code))
    assert [m.keep for m in read.messages] == [TAIL, HEAD] and not read.form.apart
    sent = fitted(code, suffix=code, max_tokens=64)
    assert code.endswith("\n" + sent["prompt"]) and code.startswith(sent["suffix"]) and sent["suffix"].endswith("\n")
    assert min(len(sent["prompt"]), len(sent["suffix"])) > 4000


def test_only_the_longer_side_of_a_gap_is_cut_where_that_is_enough() -> None:
    sent = fitted(LINES, suffix="return 1\n", max_tokens=64)
    assert sent["suffix"] == "return 1\n" and LINES.endswith(sent["prompt"])


def test_token_ids_are_not_cut_unless_a_rule_asks_for_it() -> None:
    read = parse(body(list(range(5000)), max_tokens=100))
    made = planned(read)
    assert read.messages[0].keep == RULED and not made.changed and not made.possible
    assert parse(body(list(range(50)), suffix="x")).messages[0].keep == RULED


def test_a_limit_is_lowered_and_one_that_the_client_did_not_set_is_not_added() -> None:
    assert fitted("word " * 2000, max_tokens=4000)["max_tokens"] < 2097
    assert "max_tokens" not in fitted(LINES)
    assert "max_tokens" not in fitted("word " * 600, window=512)


def test_another_model_is_written_in_its_field() -> None:
    prompt = parse(body("a"))
    made = planned(prompt)
    moved = replace(made, draft=replace(made.draft, model="davinci-002"))
    assert json.loads(render(prompt, moved))["model"] == "davinci-002"


def test_a_body_beyond_what_is_decoded_at_once_is_read_by_its_outline() -> None:
    text = "All hands on deck. " * (LONGEST // 18)
    prompt = parse(body(text, stream=True))
    assert json.loads(prompt.messages[0].raw) == text
    assert json.loads(without_stream(body(text, stream=True))) == json.loads(body(text))


def test_a_request_for_one_piece_has_no_stream() -> None:
    sent = body("a", stream=True, stream_options={"include_usage": True})
    assert json.loads(without_stream(sent)) == json.loads(body("a"))
    with pytest.raises(NotUnderstood):
        without_stream(b"[")
    assert without_extension(sent) == (sent, frozenset())
