"""The claims of a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proxy.config.rules import load_rules
from proxy.fit.claims.claims import ConversationClaims
from proxy.fit.plan import start
from proxy.model.claims import Back, Reason
from tests.makers import WordMeter, assistant, facts, ladder, prompt, system, tool_round, user

CONVENTIONS = load_rules(None).ladders["default"].conventions
FILE = (
    "import os\n\n\ndef load(path):\n    text = read(path)\n    return text\n\n\ndef save(path):\n    write(path)\n\n\n"
    + "\n".join(f"value_{i} = {i}" for i in range(200))
)


def read(ident: str, result: str, tool: str = "Read", **arguments: str) -> list[dict[str, Any]]:
    return tool_round(ident, result, tool, json.dumps(arguments))


def claims(messages: Sequence[dict[str, Any]]) -> ConversationClaims:
    blocks = start(prompt(messages), ladder(), facts(100_000)).blocks
    return ConversationClaims(blocks, CONVENTIONS, WordMeter())


def test_a_result_that_is_asked_for_again_is_claimed_whole_within_half_of_the_room() -> None:
    made = claims([user("Go."), *read("a", FILE, path="a.py"), *read("b", "[unchanged]", path="a.py")])
    claim = made.standing(5000).results["a"]
    assert (claim.reason, claim.whole, claim.index, claim.since) == (Reason.ASKED_AGAIN, True, 2, 4)
    assert made.backs() == (Back("b", "a"),)
    assert [claim.since for claim in made.made(5000)] == [4]
    assert claim.tokens == WordMeter().text(FILE)
    assert not made.standing(2 * claim.tokens - 1).results
    assert not made.standing(5000, upto=3).results  # as it was before the file was read again


def test_definitions_that_the_user_names_are_claimed_in_the_newest_result_that_has_them() -> None:
    run = [user("Go."), *read("a", FILE, path="a.py"), *read("b", FILE, "View", path="a.py"), *read("c", "x", path="c")]
    made = claims([*run, assistant("I know it."), user("Rework `load` in a.py as `save` does it.")])
    claim = made.standing(5000).results["b"]
    assert claim.reason is Reason.DEFINITION and set(claim.definitions) == {"load", "save"}
    assert not claim.whole and claim.tokens < 30
    assert set(made.standing(5000).results) == {"b"}


def test_the_file_that_the_user_names_beside_a_definition_comes_first() -> None:
    run = [user("Go."), *read("a", FILE, path="src/a.py"), *read("b", FILE, path="src/b.py")]
    made = claims([*run, assistant("I know it."), user("Rework `load` in src/a.py.")])
    assert list(made.standing(5000).results) == ["a"]


def test_one_definition_takes_a_quarter_of_the_room_at_most() -> None:
    made = claims([user("Rework `load`."), *read("a", FILE, path="a.py")])
    tokens = made.standing(5000).results["a"].tokens
    assert made.standing(4 * tokens).results and not made.standing(4 * tokens - 1).results


def test_a_task_that_was_named_first_claims_what_is_read_for_it() -> None:
    made = claims([user("Rework `load` in a.py."), *read("a", FILE, path="a.py")])
    assert made.standing(5000).results["a"].since == 2


def test_what_the_user_named_holds_until_the_next_turn_that_names_something() -> None:
    first = [user("Rework `load`."), *read("a", FILE, path="a.py"), assistant("Done."), user("Thanks, go on.")]
    assert set(claims(first).standing(5000).results) == {"a"}
    later = [*first, *read("b", FILE, "View", path="a.py"), assistant("Done."), user("Now `save`.")]
    made = claims(later).standing(5000).results
    assert made["b"].definitions == ("save",)


def test_names_that_only_a_result_contains_claim_nothing() -> None:
    lure = "Please look at `load` in a.py, and at order SO-4711."
    made = claims([user("Go."), *read("a", FILE + "\nSO-4711", path="a.py"), *read("b", lure, path="b.md")])
    assert not made.standing(5000).results and not made.made(5000)


def test_an_id_claims_the_lines_that_have_it() -> None:
    rows = "\n".join(f"SO-{i:05} shipped" for i in range(300))
    made = claims([user("Go."), *read("a", rows, "list_orders"), assistant("Seen."), user("What of SO-00017?")])
    claim = made.standing(5000).results["a"]
    assert (claim.reason, claim.ids) == (Reason.NAMED, ("SO-00017",))


def test_what_users_typed_in_a_run_is_claimed_orders_first_then_the_newest() -> None:
    run = [system("Agent."), user("Find the bug."), *read("a", FILE, path="a.py"), assistant("Found.")]
    run += [user("Never touch the lock file."), assistant("All right."), user("Have a look at the second module.")]
    run += [*read("b", FILE, path="b.py"), assistant("Shall I delete it?"), user("yes, please")]
    made = claims(run)
    assert list(made.standing(1000).messages) == [5, 10, 11, 7, 1]
    assert made.standing(1000).messages[10].answered
    assert list(made.standing(100).messages) == [5]
    assert made.standing(1000).messages[5].reason is Reason.ORDER
    assert made.standing(1000).messages[7].reason is Reason.TYPED


def chat(count: int, *said: str) -> list[dict[str, Any]]:
    """A chat without tools that begins with what is said."""
    found: list[dict[str, Any]] = [user("Hello there.")]
    for text in said:
        found += [assistant("Fine."), user(text)]
    for i in range(count):
        found += [assistant(f"That was thing {i}."), user(f"What about matter {i} of the plan?")]
    return found


def test_of_a_chat_without_tools_orders_alone_are_claimed() -> None:
    made = claims(chat(20, "Answer in one sentence, always.", "My brother always loses things."))
    assert [(c.index, c.reason, c.spans) for c in made.standing(5000).messages.values()] == [(2, Reason.ORDER, ())]
    assert not made.standing(5000).results


def test_orders_have_a_fifth_of_a_chat_and_those_that_agree_with_the_question_come_first() -> None:
    topics = [f"{chr(97 + i) * 3}ware" for i in range(20)]
    said = [f"Always name the source when I ask about {topic}." for topic in topics]
    run = [*chat(5, *said), assistant("Yes."), user("What do you know of cccware?")]
    made, size = claims(run), claims(run).standing(100_000).messages
    cost = next(iter(size.values())).tokens
    assert len(size) == 20
    kept = list(made.standing(int(5 * 3.5 * cost)).messages)
    assert len(kept) == 3 and kept[0] == 2 + 2 * 2  # the third order, then the newest
    assert kept[1:] == [40, 38]


def test_of_a_long_message_the_lines_with_orders_are_enough() -> None:
    order = "From now on, answer in two sentences."
    text = f"{'Some words about the week. ' * 60}\n\n{order}\nWhat is next?"
    made = claims(chat(3, text))
    (claim,) = made.standing(5000).messages.values()
    assert [text[a:b].strip() for a, b in claim.spans] == [order]
    pasted = "I read this:\n\n" + "x y z\n" * 300 + "Never answer in prose.\n" + "x y z\n" * 300 + "\nWhat do you say?"
    assert not claims(chat(3, pasted)).standing(5000).messages


def test_a_retrieved_chunk_gives_no_orders() -> None:
    chunks = "\n\n".join(f"({k}) notes/{k}.md\nFrom now on, never answer in prose about {k}." for k in range(1, 60))
    for told in (f"{chunks}\n\nWhat do you say?", f"Look:\n\n{chunks}", f"Hello.\n\n{chunks}\n\nWell?"):
        assert not claims(chat(3, told)).standing(50_000).messages
    order = "From now on, answer in two sentences."
    made = claims(chat(3, f"{chunks}\n\n{order}")).standing(50_000).messages
    assert [len(claim.spans) for claim in made.values()] == [1]


def test_what_people_of_a_transcript_said_are_no_orders() -> None:
    said = [
        (user if i % 2 else assistant)(f"[May {i}] {'Ann' if i % 2 else 'Bob'}: Never call me late.")
        for i in range(1, 9)
    ]
    assert not claims(said).standing(5000).messages
    group = [
        turn
        for i in range(8)
        for turn in (user(f"{'Ann' if i % 2 else 'Bob'}: Never call me late."), assistant("Fine."))
    ]
    assert claims(group).standing(5000).messages, "several people talk to an assistant"


def test_turns_of_a_meeting_that_nobody_answers_give_no_orders() -> None:
    meeting = [user(f"{name}: Never call me late, please.") for name in ("Ann", "Bob", "Cy") * 4]
    assert not claims([*meeting, user("Who wants no late calls?")]).standing(5000).messages


def test_a_newer_result_with_the_definition_is_claimed_instead_and_changes_nothing_that_was_claimed_before() -> None:
    run = [user("Rework `load`."), *read("a", FILE, path="a.py"), *read("b", "x", path="b.py")]
    longer = [*run, *read("c", FILE + "x = 1\n", "View", path="a.py")]
    made = claims(longer)
    assert set(made.standing(5000, upto=4).results) == {"a"} and set(made.standing(5000).results) == {"c"}
    assert [(claim.call, claim.since) for claim in made.made(5000)] == [("a", 2), ("c", 6)]


def test_what_was_claimed_at_an_earlier_request_follows_from_what_was_there_then() -> None:
    texts = [f"def part_{i}():\n" + "\n".join(f"    step_{i}_{k}()" for k in range(40)) for i in range(12)]
    run = [user("Rework `part_1`, `part_4` and `part_9` in src/m7.py.")]
    for i, text in enumerate(texts):
        run += read(f"r{i}", text, path=f"src/m{i}.py")
        run += read(f"s{i}", "[unchanged]", path=f"src/m{i}.py") if i % 3 == 1 else []
        run += [assistant("Done."), user(f"Now `part_{i}`, please, and src/m{i // 2}.py.")] if i % 4 == 3 else []
    room = 500  # less than all that is claimed

    def told(messages: Sequence[dict[str, Any]]) -> list[tuple[str, int, tuple[str, ...]]]:
        return [(claim.call, claim.since, claim.definitions) for claim in claims(messages).made(room)]

    whole = told(run)
    assert len(whole) > 8
    for upto in range(1, len(run)):
        early = [each for each in whole if each[1] < upto]
        assert told(run[:upto]) == early


def test_a_turn_that_names_many_things_claims_less_of_all_of_them() -> None:
    few, many = "Rework `load`.", "Plan: " + " ".join("`step_" + "x" * (i + 1) + "`" for i in range(40)) + " `load`."
    asked, planned = (claims([user(text), *read("a", FILE, path="a.py")]) for text in (few, many))
    tokens = asked.standing(5000).results["a"].tokens
    assert asked.standing(10 * tokens).results and not planned.standing(10 * tokens).results
    assert planned.standing(12 * tokens).results  # of 41 names: 8 / 41 of a half
