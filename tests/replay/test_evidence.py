"""What replies took from requests that were cut or refused: names, and the pairs of requests and replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.model.budget import Budget, Over
from proxy.replay.evidence import MAX_NAMES, MAX_WAITING, Evidence, Kept, Replies, evidence
from proxy.replay.plan_worker import Column
from proxy.replay.recorded import Recorded
from proxy.replay.sums import Tally
from tests.makers import assistant, prompt, system, tool_round, user, words
from tests.replay.recordings import run
from tests.replay.test_sums import PRICES, planned, result, tally

NAMES = ("src/app.py", "read_file", "maxTokens", "v1.2", "BD1234", "127.0.0.1", "ann@example.org", "2026-11-29")
NO_NAMES = ("harbour", "The", "and so on...", "well-kept", "e.g.", "a/b", "12:3", "")
NARROW = Column(window=3_000)


def names(*messages: dict[str, Any]) -> Evidence:
    """The evidence of a request of which nothing would be sent."""
    return evidence(prompt(messages).messages, ())


def count(packed: bytes) -> int:
    return len(packed) // 8


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_one_wherever_it_stands(text: str) -> None:
    alone = names(user(text)).had
    assert count(alone) == 1
    for around in (f"See {text}.", f'"{text}"', f"({text})\n", f"{text}:", f"港に {text} があります", f"`{text}`,"):
        assert names(user(around)).had == alone
    for value in (f'one\n{text}\tand "{text}"', [{"deep": text}], f"港に {text}"):
        assert names(*tool_round("a", "x", arguments=json.dumps({"query_1": value}))).had == alone
    assert names(*tool_round("a", "x", arguments=f"*** Begin\n{text}\n+x")).had == alone, "a text is no JSON"


@pytest.mark.parametrize("text", NO_NAMES)
def test_words_are_no_names(text: str) -> None:
    assert not names(user(text)).had


def test_what_is_lost_is_what_is_nowhere_in_what_is_sent() -> None:
    before = prompt([user("a_one b_two"), user("b_two c_three")]).messages
    found = evidence(before, before[1:])
    assert (count(found.had), count(found.lost)) == (3, 1)
    assert evidence(before, before).lost == b"" and evidence(before, None).had == b""


def test_the_latest_reply_is_all_that_the_model_said_after_the_last_word_of_others() -> None:
    talk = [user("q_1"), assistant("a_one"), user("q_2"), *tool_round("c", "r_esult", arguments='{"path": "b_two"}')]
    found = names(*talk)
    assert found.after == names(*talk[:3]).end and found.said == names(user("b_two")).had
    assert names(*talk, assistant("It ends a_s")).said == b"", "this reply is yet to come"
    assert names(user("q_1")).said == evidence((), None).said == b""


def test_the_names_of_a_long_request_are_a_sample_that_another_one_shares() -> None:
    many = words(3 * MAX_NAMES, "n_")
    first, second = names(user(many)), names(user(many), user("q"))
    assert count(first.had) == MAX_NAMES and first.had == second.had


def test_names_of_arguments_are_none() -> None:
    assert (
        names(*tool_round("a", "x", arguments=json.dumps({"file_path": "alpha", "old_string": True, "n_1": 7}))).had
        == b""
    )


def replies(*found: tuple[str, Evidence, bool]) -> list[Kept]:
    """What these requests of these conversations add, each to sums of its own."""
    pairs, sums = Replies(), [Kept() for _ in found]
    for (talk, one, sent), kept in zip(found, sums, strict=True):
        pairs.add((talk, 0), one, [kept], whole=not one.had, sent=sent)
    return sums


OPENING = [user("a_one b_two c_three")]
SECOND = evidence(prompt([*OPENING, assistant("a_one b_two d_four"), user("And?")]).messages, None)
NONE = Kept(requests=1)
FIRST = evidence(prompt(OPENING).messages, prompt([user("a_one c_three")]).messages)


def test_of_what_a_reply_took_that_counts_which_is_sent() -> None:
    first, second = replies(("x", FIRST, True), ("x", SECOND, True))
    assert first == Kept(2, 1, 1, 1)
    assert second == Kept(), "it was sent whole"
    assert replies(("x", FIRST, False), ("x", SECOND, True))[0] == Kept(2, 0, 1, 1), "it was not sent"


def test_a_reply_belongs_to_the_request_before_it_and_to_no_other() -> None:
    assert replies(("x", FIRST, True), ("y", SECOND, True))[0] == NONE, "another conversation"
    later = names(*OPENING, assistant("x"), user("y"), assistant("a_one"), user("z"))
    assert replies(("x", FIRST, True), ("x", later, True))[0] == NONE, "a request between them is not recorded"
    whole = evidence(prompt(OPENING).messages, None)
    assert replies(("x", FIRST, True), ("x", whole, True), ("x", SECOND, True))[0] == NONE, "it was repeated"


def test_conversations_that_begin_alike_are_told_apart_where_they_go_on() -> None:
    """The same task twice at once, and a side request with the same first message."""
    other = [*OPENING, assistant("b_two"), user("Other?")]
    cut = evidence(prompt(other).messages, ())
    after = evidence(prompt([*other, assistant("b_two"), user("?")]).messages, None)
    side = evidence(prompt([*OPENING, user("A title, please.")]).messages, ())
    found = replies(("x", FIRST, True), ("x", side, True), ("x", cut, True), ("x", SECOND, True), ("x", after, True))
    # The reply in `cut` is one to FIRST, whose place is then empty.
    assert [(one.taken, one.paired) for one in found] == [(1, 1), (0, 0), (1, 1), (0, 0), (0, 0)]


def test_few_conversations_wait_for_their_replies() -> None:
    others = [(f"o{number}", FIRST, True) for number in range(2 * MAX_WAITING)]
    assert replies(("x", FIRST, True), *others, ("x", SECOND, True))[0] == NONE


def talk(*replied: str) -> list[bytes]:
    """The requests of a conversation: an early answer has a code, much follows, and its last message has another."""
    notes = [one for place in range(60) for one in (user(words(60, f"w{'x' * place}")), assistant("ok"))]
    early = [user("Note this."), assistant("Noted: BD1234.")]
    messages = [system("Be brief."), user("Begin."), *early, *notes, user("Late: FG5678. What is it?")]
    bodies = []
    for said in (*replied, ""):
        bodies.append(json.dumps({"model": "gpt-4", "messages": messages}).encode())
        messages = [*messages, assistant(said), user("And?")]
    return bodies


def added(bodies: Sequence[bytes], **more: Any) -> Tally:
    found = Tally(lambda recorded: lambda model, upstream: PRICES)
    for one in run(*(Recorded(body, **more) for body in bodies), columns=(NARROW,)):
        found.add(one, 0)
    return found


def test_a_cut_keeps_what_is_at_its_end_and_says_what_the_reply_took_of_the_rest() -> None:
    assert added(talk("It is FG5678.", "x")).total.evidence == Kept(1, 1, 3, 2)
    lost = added(talk("It was BD1234, and is FG5678.", "x"))
    assert lost.total.cut == 3 and lost.total.evidence == Kept(2, 1, 3, 2)
    assert [group.evidence for group in (*lost.models.values(), *lost.apps.values())] == [lost.total.evidence] * 2
    assert added(talk("It is FG5678."), redacted=True).total.evidence == Kept(), "its words are others"


@pytest.mark.parametrize("over", [Over.FIT, Over.REFUSE])
def test_a_budget_has_the_evidence_of_what_it_cut_and_of_what_it_refused(over: Over) -> None:
    budget = Budget("day", 20_000, soft=0.4, window=1_000, over=over, everything=True)
    small = planned(sent=4_096, caller="ann", evidence=FIRST)
    staged = (small, small, small) if over is Over.FIT else ()
    whole = evidence(prompt(OPENING).messages, prompt(OPENING).messages)
    asked = planned(caller="ann", budget=budget, staged=staged, evidence=whole)
    reply = planned(caller="ann", evidence=SECOND, talk=0)
    found = tally(*(result(one, at) for at, one in enumerate((asked, reply) * 4)))
    (sums,) = found.ledger.all()
    kept = {Over.FIT: Kept(2 + 2 + 2, 1 + 1 + 0, 3, 3), Over.REFUSE: Kept(2 + 2, 0, 2, 2)}[over]
    assert sums.evidence == found.total.evidence == kept, "without those that were sent whole"
