"""Which requests ask for a summary of the conversation."""

from __future__ import annotations

import json

import pytest

from proxy.apis.openai_embeddings import API as EMBEDDINGS
from proxy.apis.openai_responses import API
from proxy.fit.plan import plan
from proxy.model.bounded import Bounded
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.model.terms import USUAL, OnFull, Terms
from proxy.request.left_to_agents import Agents, is_compaction
from proxy.request.stages import Descent, Planned, Received, Scanned
from proxy.wire.headers import Header
from tests.makers import facts, ladder

LEFT = Terms(on_full=OnFull.AGENT)
KEY = ((b"authorization", b"Bearer sk-1"),)
FIRST, NEXT = {"role": "user", "content": "Hi"}, {"role": "user", "content": "And?"}


def asks(path: str, *items: object) -> bool:
    body = json.dumps({"model": "gpt-4o", "input": list(items)}).encode()
    return is_compaction(Received(API, Mode.FIT, path, body=body), Scanned(body, API.request.scan(body)))


def test_what_the_provider_is_to_compact_is_one() -> None:
    talk = {"role": "user", "content": "Hi"}
    assert asks(API.compact_paths[0], talk) and asks("/v1/responses", talk, {"type": "compaction_trigger"})
    assert not asks("/v1/responses", talk)


def planned(
    *items: object, path: str = "/v1/responses", terms: Terms = LEFT, headers: tuple[Header, ...] = KEY
) -> Planned:
    body = json.dumps({"model": "gpt-4o", "input": list(items)}).encode()
    prompt = API.request.parse(body)
    made = Descent(prompt, facts(9), plan(prompt, ladder(), facts(9)))
    received = Received(API, Mode.FIT, path, headers, body=body, terms=terms)
    return Planned(received, body, Scanned(body, API.request.scan(body)), descent=made)


def leaves(agents: Agents, one: Planned) -> bool:
    assert one.scanned is not None and one.descent is not None
    return agents.leaves(one.received, one.scanned, one.descent.prompt)


def test_what_is_no_compaction_is_left_to_an_agent_where_that_is_wished() -> None:
    agents, compact = Agents(), API.compact_paths[0]
    assert leaves(agents, planned(FIRST)) and not leaves(agents, planned(FIRST, terms=USUAL))
    assert not leaves(agents, planned(FIRST, path=compact))
    vectors = EMBEDDINGS.request.parse(b'{"model":"text-embedding-3-small","input":"Hi"}')
    one = planned(FIRST)
    assert one.scanned is not None and not agents.leaves(one.received, one.scanned, vectors)


def test_a_conversation_whose_compaction_was_refused_is_fitted_from_there_on_and_no_other() -> None:
    agents, compact = Agents(), API.compact_paths[0]
    agents.note_refused(planned(FIRST, NEXT))  # no compaction
    agents.note_refused(planned(FIRST, path=compact, terms=USUAL))
    agents.note_refused(replace(planned(FIRST, path=compact), descent=None))
    assert leaves(agents, planned(FIRST, NEXT))
    agents.note_refused(planned(FIRST, NEXT, path=compact))
    assert not leaves(agents, planned(FIRST)) and not leaves(agents, planned(FIRST, NEXT, NEXT))
    assert leaves(agents, planned(NEXT))
    assert leaves(agents, planned(FIRST, headers=((b"authorization", b"Bearer sk-2"),)))


def test_what_is_remembered_is_bounded_and_tells_nothing() -> None:
    agents = Agents(_refused=Bounded(2))
    for text in ("a", "b", "c"):
        agents.note_refused(planned({"role": "user", "content": text}, path=API.compact_paths[0]))
    found = [leaves(agents, planned({"role": "user", "content": text})) for text in ("a", "b", "c")]
    assert found == [True, False, False]


@pytest.mark.parametrize("text", ["x" * 1_000_000, ""])
def test_any_text_begins_a_conversation(text: str) -> None:
    agents, item = Agents(), {"role": "user", "content": text}
    agents.note_refused(planned(item, path=API.compact_paths[0]))
    assert not leaves(agents, planned(item)) and leaves(agents, planned(FIRST))
