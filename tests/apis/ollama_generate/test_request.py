"""A request of /api/generate as a Prompt, and a Draft as its JSON again."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.ollama_generate import API
from proxy.apis.ollama_generate.request import parse, recognises, render, scan, without_extension
from proxy.fit.plan import plan
from proxy.fit.steps import truncate_longest
from proxy.model.conversation import HEAD, TAIL, Kind, PartKind, Prompt
from proxy.model.lenient_json import raw_fields
from proxy.model.limits import Window
from proxy.model.plan import Facts, LadderStep, Plan
from proxy.model.scan import PrefixDigest
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from proxy.wire.scan import NotUnderstood
from tests.makers import facts, ladder, words
from tests.tokens.remembering import Remembering


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "hello", **fields}).encode()


def planned(sent: Prompt) -> Plan:
    """A plan that changes nothing."""
    return plan(sent, ladder(), facts(10_000))


def shortened(sent: Prompt, window: int) -> Plan:
    """A plan with the last resort alone."""
    last = LadderStep("truncate_longest", partial(truncate_longest.apply, params=truncate_longest.Params()))
    return plan(sent, ladder(last), Facts(Window(window), meter_for(sent, "llama3.2", Remembering())))


def test_a_request_is_read() -> None:
    found = parse(body(system="s", context=[1, 2], options={"num_predict": 9}), pins=[1])
    assert (found.model, found.stream, found.reply.limit, found.api) == ("m", True, 9, "generate")
    assert [(m.role, m.kind, m.keep, m.index) for m in found.messages] == [
        ("system", Kind.INSTRUCTION, "", 0),
        ("context", Kind.OTHER, TAIL, 1),
        ("prompt", Kind.USER, "", 2),
    ]
    assert found.form.texts and found.pins == {1} and not parse(body(stream=False)).stream
    assert found.messages[1].parts()[0].kind is PartKind.TOKENS


def test_at_a_gap_both_sides_stay() -> None:
    assert [(m.role, m.keep) for m in parse(body(suffix="x")).messages] == [("prompt", TAIL), ("suffix", HEAD)]
    assert [m.role for m in parse(body(suffix="", system="", context=[])).messages] == ["prompt"]


def test_a_request_without_a_prompt_loads_the_model_and_is_understood() -> None:
    raw = b'{"model":"m","keep_alive":0}'
    sent = parse(raw)
    assert [m.raw for m in sent.messages] == [b'""'] and render(sent, planned(sent)) == raw
    assert scan(raw).most == len(raw)


def test_a_scan_bounds_the_tokens_by_the_bytes_unless_there_are_images() -> None:
    found = scan(body(options={"num_ctx": 4096, "num_predict": 5}))
    assert (found.model, found.reserve, found.window, found.stream) == ("m", 5, 4096, True)
    assert found.most == len(found.text) and not scan(body(stream=False)).stream
    assert scan(body(images=["AAAA"])).most is None and scan(body(images=[])).most is not None
    picture = parse(body(images=["AAAA"]))
    assert picture.opaque and picture.needs == {"vision"}
    assert API.request.known_prefix(body(), found, PrefixDigest(0, 0, 0, (), None)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model":1}',
        b'{"model":"m","prompt":5}',
        b'{"model":"m","prompt":[1]}',
        b'{"model":"m","system":{}}',
        b'{"model":"m","options":{"num_predict":"x"}}',
        b"\xff",
    ],
)
def test_what_is_no_request_is_not_understood(wrong: bytes) -> None:
    for read in (scan, parse):
        with pytest.raises(NotUnderstood):
            read(wrong)


@pytest.mark.parametrize("context", ['"x"', '["x"]', "5", "[1.5]"])
def test_a_context_that_has_no_ids_is_not_understood(context: str) -> None:
    with pytest.raises(NotUnderstood):
        parse(b'{"model":"m","context":' + context.encode() + b"}")


def test_what_was_not_changed_keeps_its_bytes() -> None:
    raw = b'{"x":[ 1.50 ],"model":"m","prompt":"a","options":{ "num_predict":5}}'
    sent = parse(raw)
    assert render(sent, planned(sent)) == raw


def test_what_changed_is_written_and_nothing_is_dropped_in_silence() -> None:
    sent = parse(body(system="s", options={"top_k": 1.5, "num_predict": 50}))
    made = planned(sent)
    block = made.draft.blocks[-1]
    shorter = replace(block, messages=(replace(block.messages[0], raw=b'"hell"'),))
    less = replace(made.draft.with_blocks([*made.draft.blocks[:-1], shorter]), model="n", reply=7)
    assert json.loads(render(sent, replace(made, draft=less))) == {
        "model": "n",
        "prompt": "hell",
        "system": "s",
        "options": {"top_k": 1.5, "num_predict": 7},
        "truncate": False,
    }
    kept = parse(body(truncate=True))
    made = planned(kept)
    assert json.loads(render(kept, replace(made, draft=replace(made.draft, model="n"))))["truncate"] is True


def test_of_a_context_the_oldest_ids_go() -> None:
    sent = parse(body(context=list(range(3_000)), prompt=words(40)))
    made = shortened(sent, 2_000)
    found = json.loads(render(sent, made))
    assert 0 < len(found["context"]) < 3_000 and found["context"][-1] == 2_999
    assert found["prompt"] == words(40) and made.fits


def test_a_long_prompt_is_shortened() -> None:
    sent = parse(body(prompt=words(3_000)))
    made = shortened(sent, 4_000)
    assert made.fits and len(json.loads(render(sent, made))["prompt"]) < len(words(3_000))


def test_a_body_is_recognised_by_what_only_this_api_has() -> None:
    own: list[dict[str, Any]] = [{"options": {}}, {"raw": True}, {"context": []}, {"keep_alive": 5}]
    for fields in own:
        assert recognises(raw_fields(body(**fields)))
    assert not recognises(raw_fields(body())) and not recognises(raw_fields(body(messages=[], options={})))


def test_there_is_no_key_of_ours_in_it() -> None:
    raw = body(plimsoll=1)
    assert without_extension(raw) == (raw, frozenset())


texts = st.none() | st.text(max_size=40)


@given(texts, texts, texts, st.none() | st.lists(st.integers(0, 9), max_size=5), st.none() | st.booleans())
def test_a_request_written_again_is_the_same_request(
    prompt: str | None, suffix: str | None, system: str | None, context: list[int] | None, stream: bool | None
) -> None:
    raw = body(prompt=prompt, suffix=suffix, system=system, context=context, stream=stream)
    sent = parse(raw)
    made = planned(sent)
    again = render(sent, replace(made, draft=replace(made.draft, blocks=tuple(made.draft.blocks))))
    assert parse(again).messages == sent.messages
    assert scan(raw).stream is sent.stream
