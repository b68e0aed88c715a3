"""A request for embeddings as a Prompt, and a plan as its JSON again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_embeddings import API
from proxy.apis.openai_embeddings.request import parse, render, scan, without_extension, without_stream
from proxy.fit.plan import plan
from proxy.fit.steps import truncate_inputs
from proxy.model.conversation import Prompt
from proxy.model.limits import Window
from proxy.model.oversized_json import LONGEST
from proxy.model.plan import Facts, LadderStep, Plan
from proxy.model.scan import PrefixDigest
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from proxy.wire.scan import NotUnderstood
from tests.makers import ladder
from tests.tokens.remembering import Remembering

CUT = LadderStep("truncate_inputs", lambda d, f: truncate_inputs.apply(d, f, truncate_inputs.Params()))


def body(said: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "text-embedding-3-small", "input": said, **fields}).encode()


def planned(prompt: Prompt, *steps: LadderStep, **window: Any) -> Plan:
    known = Window(8192, max_inputs=2048, max_together=300_000)
    return plan(prompt, ladder(*steps), Facts(replace(known, **window), meter_for(prompt, prompt.model, Remembering())))


def test_the_bytes_of_the_longest_input_bound_its_tokens_and_there_is_no_reply() -> None:
    found = scan(body(["ab", "longer"]))
    assert (found.model, found.reserve, found.stream, found.most) == ("text-embedding-3-small", 0, False, 8)
    assert found.seen.count == 2 and API.request.known_prefix(b"", found, PrefixDigest(0, 0, 0, (), None)) is None
    prompt = parse(body("ab"))
    assert prompt.reply.limit == 0 and prompt.form.embeds and prompt.form.apart and prompt.form.texts


@pytest.mark.parametrize("sent", [b"", b"{}", b"[]", body([]), body(None), body([{"text": "a"}]), body([1, "a"])])
def test_what_is_no_request_for_embeddings_is_not_understood(sent: bytes) -> None:
    for read in (parse,) if sent == body([1, "a"]) else (scan, parse):
        with pytest.raises(NotUnderstood):
            read(sent)


def test_what_fits_keeps_its_bytes_up_to_the_last_token_of_the_window() -> None:
    sent = b'{"input": [ "a", "b" ], "model":"text-embedding-3-small" , "dimensions": 9}'
    prompt = parse(sent)
    assert b'"input":[ "a", "b" ]' in render(prompt, planned(prompt))
    full = parse(body([[7] * 8192]))
    made = planned(full, CUT)
    assert not made.changed and made.possible


def test_an_input_that_is_too_long_is_cut_only_by_a_step_that_a_rule_asks_for() -> None:
    prompt = parse(body(["a", "word " * 9000, list(range(9000))]))
    assert not planned(prompt).possible
    made = planned(prompt, CUT)
    sent = json.loads(render(prompt, made))["input"]
    assert made.possible and sent[0] == "a" and ("word " * 9000).startswith(sent[1])
    assert 8000 < made.draft.prompt <= 8192
    assert sent[2] == list(range(len(sent[2])))


def test_more_inputs_than_one_request_takes_go_in_pieces() -> None:
    prompt = parse(body([f"text {i}" for i in range(5000)], user="u"))
    made = planned(prompt)
    assert [len(piece) for piece in made.pieces] == [2048, 2048, 904] and made.changed
    assert [note.step for note in made.notes] == ["split_request"]
    draft = made.draft.with_blocks(made.pieces[2])
    assert json.loads(render(prompt, replace(made, draft=draft))) == {
        "model": "text-embedding-3-small",
        "input": [f"text {i}" for i in range(4096, 5000)],
        "user": "u",
    }


def test_another_model_is_written_in_its_field() -> None:
    prompt = parse(body("a"))
    made = planned(prompt)
    assert json.loads(render(prompt, replace(made, draft=replace(made.draft, model="m"))))["model"] == "m"


def test_a_body_beyond_what_is_decoded_at_once_is_read_by_its_outline() -> None:
    text = "All hands on deck. " * (LONGEST // 18)
    assert json.loads(parse(body([text, "b"])).messages[0].raw) == text


def test_there_is_nothing_to_take_out_of_a_body() -> None:
    sent = body("a")
    assert without_extension(sent) == (sent, frozenset()) and without_stream(sent) is sent
