"""What the last user turn asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fit.blocks import group
from proxy.fit.relevance.text import question
from proxy.fit.relevance.text.bm25 import Index
from proxy.fit.relevance.text.question import (
    LONG,
    MAIN,
    USER_HEAD,
    USER_TAIL,
    Clause,
    Question,
    content_words,
    ends,
    question_in,
    question_of,
)
from proxy.fit.relevance.text.reading import Reading, read_text
from proxy.model.conversation import Block
from proxy.model.structs import replace
from tests.makers import assistant, draft, prompt, system, tool_round, user, words

ASKED = "When does the ferry to the northern island leave?"
SAID = [
    "The ferry to the northern island leaves at nine.",
    "We have packed the blue lantern and all that you wanted.",
    "Your sister called about the garden that she has.",
    "They said that the bridge would be closed for the week.",
    "You should have a look at the map before we go there.",
    "I think that the weather is what it was, and that we wait.",
]
TALK = [(assistant if i % 2 else user)(text) for i, text in enumerate(SAID)]


def blocks(*messages: dict[str, Any]) -> tuple[Block, ...]:
    return group(prompt(messages).messages)


def asked(*messages: dict[str, Any]) -> Question:
    """The question at the end of a conversation."""
    found = question_of(blocks(system("s"), *TALK, *messages))
    assert found is not None
    return found


def own(found: Question) -> dict[str, float]:
    """The clauses of the last user message and their weights."""
    return {clause.text: clause.weight for clause in found.clauses if clause.start >= 0}


def earlier(found: Question) -> dict[str, float]:
    return {clause.text: clause.weight for clause in found.clauses if clause.start < 0}


def test_the_question_is_what_the_last_user_message_asks_and_where_it_stands() -> None:
    found = asked(user(ASKED), assistant("At nine."))
    assert (found.text, found.place, found.spans, found.follows) == (ASKED, 7, ((0, len(ASKED)),), False)


def test_without_a_user_message_there_is_no_question() -> None:
    assert question_of(()) is None and question_of(blocks(system("s"), assistant("a"))) is None


def test_a_message_of_the_proxy_asks_nothing() -> None:
    first, written = blocks(user("first?"), user("[Excerpts]"))
    written = replace(written, messages=tuple(replace(m, index=-1) for m in written.messages))
    found = question_of((first, written))
    assert found is not None and found.text == "first?"


# Clauses.


@pytest.mark.parametrize(
    "wrapped",
    [
        "Good evening, dear friend! {} Many thanks in advance, and greetings to everybody.",
        "Kurze Frage von mir: {} Vielen Dank im Voraus!",
        '{{"speaker": "a", "content": "{}", "most": 30}}',
        "<request>\n<note>Short, if possible.</note>\n<text>{}</text>\n</request>",
        "# Job\nLook something up.\n\n## Asked\n{}\n\n## Rules\n- no lists\n- no apologies",
        "Would you be so kind? {} Could you perhaps manage that today?",
    ],
)
def test_courtesy_templates_and_rules_weigh_little_beside_what_is_asked(wrapped: str) -> None:
    text = wrapped.format(ASKED)
    found = asked(user(text))
    weights = own(found)
    assert weights[ASKED] == 1.0 and sum(weights.values()) < 1.5 and found.text == ASKED
    assert [text[start:end] for start, end in found.spans] == [ASKED] and not found.follows


def test_what_is_asked_needs_no_question_mark() -> None:
    told = ASKED.replace("When does", "Tell me when").replace("?", ".")
    weights = own(asked(user(f"Would you be so kind? {told} Thanks.")))
    assert weights[told] == 1.0 and weights.get("Would you be so kind?", 0.0) < MAIN


def test_what_names_something_by_a_capital_or_a_number_weighs_more() -> None:
    talk = [user(f"{text} {name}") for text, name in zip(SAID, ["Ann"] * 3 + ["Bob", "flat 17", "x"], strict=True)]
    found = question_of(blocks(*talk, user("What is with Ann? What is with it?")))
    assert found is not None and own(found) == {"What is with Ann?": found.clauses[0].weight}
    found = question_of(blocks(*talk, user("What is in 17? What is in it?")))
    assert found is not None and found.text == "What is in 17?"


def test_several_names_make_a_question_of_its_own_even_if_no_turn_has_them_together() -> None:
    talk = [user(f"{text} {name}") for text, name in zip(SAID, ["Ann", "Bob", "Cyd", "Dan", "Eve", "x"], strict=True)]
    found = question_of(blocks(*talk, user("What about Ann, Bob, Cyd and Dan?")))
    assert found is not None and not found.follows


def test_where_no_word_is_known_the_signs_alone_decide() -> None:
    found = asked(user("Xyl vrong. Zib quonk? Brill."))
    assert found.text == "Zib quonk?"
    found = asked(user("Xyl vrong. Zib quonk."))
    assert len(set(own(found).values())) == 1


def test_a_message_without_letters_is_one_clause() -> None:
    assert own(asked(user("???"))) == {"???": own(asked(user("???")))["???"]} and question_of(blocks(user("")))


# Long messages.


PASTED = "\n".join(f"line {i} of what was pasted" for i in range(LONG // 20))


@pytest.mark.parametrize(
    "template",
    ["{ask}\n\n{text}", "{text}\n\n{ask}", "{ask}\n{text}", "{text}\n{ask}", "Text:\n\n{text}\n\n{ask}\n\nBe brief."],
)
def test_before_and_behind_a_pasted_text_stands_what_is_asked(template: str) -> None:
    text = template.format(ask=ASKED, text=PASTED)
    found = asked(user(text))
    assert ASKED in [text[start:end] for start, end in found.spans]
    assert not any("line 20 " in clause.text for clause in found.clauses)


def test_of_one_endless_line_the_ends_are_read() -> None:
    found = asked(user(f"{ASKED} {'x' * LONG}"))
    assert found.text.startswith(ASKED) and len(found.text) < LONG
    assert len(asked(user("." * (LONG + 1))).clauses) == 2


# Follow-ups.


@pytest.mark.parametrize(
    "text", ["Are you sure?", "why", "???", "Bist du sicher?", "¿y cuándo?", "もう一度", "And then?"]
)
def test_a_follow_up_includes_the_user_message_before_it(text: str) -> None:
    found = asked(user(f"Good evening! {ASKED}"), assistant("At nine."), user(text))
    assert found.follows and list(earlier(found)) == [ASKED]
    assert earlier(found)[ASKED] > max(own(found).values()) and found.spans == ((0, len(text)),)


def test_a_follow_up_of_a_follow_up_goes_back_to_the_question() -> None:
    found = asked(user(ASKED), assistant("At nine."), user("Are you sure?"), assistant("Yes."), user("Really?"))
    assert ASKED in earlier(found)


def test_a_question_of_its_own_leaves_the_one_before_alone() -> None:
    found = asked(
        user(ASKED), assistant("At nine."), user("What about the sister and the garden that she called about?")
    )
    assert not found.follows


def test_a_turn_of_a_transcript_is_not_the_question_before() -> None:
    talk = [user(f"{who}: {text}") for who, text in zip(["Ann", "Bob"] * 3, SAID, strict=True)]
    found = question_of(blocks(*talk, user(f"Ann: {ASKED}"), user("why?")))
    assert found is not None and not found.follows
    found = question_of(blocks(*talk, user(ASKED), user("why?")))
    assert found is not None and found.follows


def test_a_message_of_which_no_other_turn_has_a_word_is_not_the_question_before() -> None:
    assert earlier(asked(user(ASKED), user("Xyl vrong."), user("why?"))) == earlier(asked(user(ASKED), user("why?")))


def test_a_story_weighs_less_than_a_question() -> None:
    story = f"{SAID[0][:-1]}, {words(9)} and {SAID[1]}"
    assert max(earlier(asked(user(story), user("why?"))).values()) < max(
        earlier(asked(user(ASKED), user("why?"))).values()
    )


def test_the_question_depends_on_nothing_that_comes_later() -> None:
    talk = blocks(*TALK, user(ASKED), *tool_round("c", "result"), user("why?"), assistant("so"))
    assert question_of(talk[:7]) == question_of(blocks(*TALK, user(ASKED)))
    assert question_of(talk) == question_of(talk)


# The query.


def test_the_query_weighs_words_by_their_clauses_and_is_english_for_an_english_conversation() -> None:
    index = Index()
    for text in SAID:
        index.add((read_text(text),))
    found = Question((Clause("ferries leave", 1.0, 0, 13), Clause("the ferries", 0.5))).query(index)
    assert found.english and dict(found.words) == {"ferries": 1.5, "leave": 1.0}


def test_in_other_languages_the_words_of_the_query_weigh_by_their_rarity_too() -> None:
    index = Index()
    for text in ("Die Laterne steht im Keller", "Der Keller ist leer", "Im Garten ist es kalt"):
        index.add((read_text(text),))
    found = question_in("Wo ist die Laterne im Keller?").query(index)
    weights = dict(found.words)
    assert not found.english and weights["laterne"] == 1.0 > weights["keller"] > weights["wo"] == 0.0


def test_content_words_are_neither_function_words_nor_single_letters() -> None:
    assert content_words("What is the x of the crane? 船") == ["crane", "船"]


def test_of_a_long_text_without_a_conversation_its_ends_are_the_question() -> None:
    text = "".join(chr(97 + i % 26) for i in range(9_000))
    found = question_in(text)
    assert found.text == ends(text) == f"{text[:USER_HEAD]}\n{text[-USER_TAIL:]}"
    assert [text[start:end] for start, end in found.spans] == [clause.text for clause in found.clauses]


# Pasted texts.


@pytest.mark.parametrize(
    "template", ["Here is the text:\n\n{text}\n\n{asked}", "{asked}\n\n{text}\n\nThe text ends here."]
)
@pytest.mark.parametrize("joint", ["\n", " "])
def test_a_question_beside_a_pasted_text_is_what_agrees_with_the_text(template: str, joint: str) -> None:
    filling = [f"{sentence} That was on day {i}." for i in range(60) for sentence in SAID[1:]]
    text = joint.join([*filling[:150], SAID[0], *filling[150:]])
    found = question_of(blocks(system("Answer from the text."), user(template.format(text=text, asked=ASKED))))
    assert len(text) > LONG and found is not None and ASKED in found.text
    assert own(found)[ASKED] == 1.0 and "Here is the text" not in found.text


def test_of_very_long_pasted_texts_some_passages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(text: str) -> Reading:
        read.append(text)
        return read_text(text)

    monkeypatch.setattr(question, "read_text", noted)
    monkeypatch.setattr(question, "PASTED", 1000)
    text = "\n".join(f"{sentence} That was on day {i}." for i in range(60) for sentence in SAID)
    assert question_of(blocks(user(f"{text}\n\n{ASKED}"), assistant("a"), user(ASKED))) is not None
    assert 5 < len({found for found in read if "That was on day" in found}) < 30


@pytest.mark.parametrize("around", [("", "Who ties barrel b41x?"), ("Who ties barrel b41x?", "")])
def test_of_a_long_message_two_paragraphs_at_either_end_may_be_its_users(around: tuple[str, str]) -> None:
    paragraphs = [f"Barrel b{i}x stands by the wall of quay {i}." for i in range(200)]
    told = "\n\n".join(filter(None, (around[0], *paragraphs, around[1])))
    found = question_of(draft([user(told)], 9000).blocks)
    assert found is not None and "Who ties barrel b41x?" in found.text
    kept = {told[start:end] for start, end in found.spans}
    assert kept <= {"Who ties barrel b41x?", *paragraphs[:2], *paragraphs[-2:]}


def test_a_long_message_of_two_paragraphs_is_searched_whole_within_its_ends() -> None:
    lines = "\n".join(f"Barrel b{i}x stands by the wall of quay {i}." for i in range(200))
    found = question_of(draft([user(f"{lines}\n\nWho ties barrel b41x?")], 9000).blocks)
    assert found is not None and "Who ties barrel b41x?" in found.text


TWO = "When does the ferry to the northern island leave? And who called about the garden?"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (TWO, [ASKED, "And who called about the garden?"]),
        (
            f"Good morning! Could you help me, please? {TWO} Thank you so much!",
            [ASKED, "And who called about the garden?"],
        ),
        (
            "Collect what was said on this: the northern ferry; the garden of your sister.",
            ["the northern ferry;", "the garden of your sister."],
        ),
        (
            "Summarise the ferry to the northern island and the garden of your sister",
            ["Summarise the ferry to the northern island", "the garden of your sister"],
        ),
    ],
)
def test_what_is_asked_for_itself_is_a_question_of_its_own(text: str, parts: list[str]) -> None:
    found = asked(user(text))
    assert sorted(part.text for part in found.apart) == sorted(parts)
    assert all(text[start:end] in found.text for start, end in found.spans)


@pytest.mark.parametrize("text", [ASKED, f"Could you help me? {ASKED} Thank you!", "Are you sure?", "Fine. Go on."])
def test_one_question_with_courtesy_is_one(text: str) -> None:
    found = asked(user(text))
    assert found.apart == (found,)


@pytest.mark.parametrize("joint", [" and ", " und "])
def test_of_an_order_of_very_many_parts_so_many_halves_are_compared(
    joint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreements, compared = Index.agreements, []

    def counted(index: Index, groups: Any, *others: Any) -> list[float]:
        compared.append(groups)
        return agreements(index, groups, *others)

    monkeypatch.setattr(Index, "agreements", counted)
    asked(user("Summarise what Nora keeps" + joint.join(f"thing{number}" for number in range(300))))
    assert len(compared) <= question.JOINTS + 5


@pytest.mark.parametrize(
    "wrapped", ["{q}", "Hallo! Vielen Dank für deine Hilfe vorhin. {q} Ich freue mich auf die Antwort."]
)
def test_a_question_in_another_language_than_the_conversation_outweighs_courtesy(wrapped: str) -> None:
    talk = [
        user("We have been to the zoo with the kids and what they liked was the lions."),
        assistant("That is great. Did they also have a look at the monkeys there?"),
        user("Yes, and she has bought a bicycle for the way to the office, it is what she had wanted."),
        assistant("What colour is it? I would like to have one that is red."),
        user("It has been raining in the mountains and our tent was wet when we had to go."),
        assistant("You should have stayed in the hotel with us."),
    ]
    found = question_of(blocks(system("s"), *talk, user(wrapped.format(q="Wann hat sie das Fahrrad gekauft?"))))
    assert found is not None
    assert max(own(found), key=lambda clause: own(found)[clause]) == "Wann hat sie das Fahrrad gekauft?"


def test_a_follow_up_in_another_language_is_answered_in_that_of_the_question_before() -> None:
    before = Clause("When have they been to the zoo with the kids?", 1.0)
    found = Question((Clause("Bist du dir da wirklich sicher?", 0.5, 0, 31), before))
    index = Index()
    for text in ("We have been to the zoo and what they liked was the lions.", "It is what she would have said."):
        index.add((read_text(text),))
    assert found.follows and not found.query(index).asked_in and ("zoo", 1.0) in found.query(index).words
    assert Question(found.clauses[:1]).query(index).asked_in == "de"


CHUNK = "The keeper of the southern lighthouse asks for oil.\nWhen does the doctor come to the southern lighthouse?"


@pytest.mark.parametrize(
    "form", ["({k}) notes/{k}.md\n{text}", '<note id="{k}">\n{text}\n</note>', "## Note {k}\n\n*{k}.md*\n\n{text}"]
)
@pytest.mark.parametrize("at", ["first", "last"])
def test_a_retrieved_chunk_is_never_taken_for_what_the_user_asks(form: str, at: str) -> None:
    chunks = "\n\n".join(form.format(k=k, text=CHUNK if k in (1, 90) else " ".join(SAID[:2])) for k in range(1, 91))
    assert len(chunks) > LONG
    told = user(f"{chunks}\n\n{ASKED}" if at == "last" else f"{ASKED}\n\n{chunks}")
    found = question_of(draft([*TALK, told, assistant("I see.")], 9000).blocks)
    assert found is not None and ASKED in found.text and "lighthouse" not in found.text


def test_of_a_template_of_json_what_stands_around_it_asks_or_else_its_own_texts() -> None:
    rows = [{"id": i, "text": CHUNK} for i in range(90)]
    around = question_of(draft([*TALK, user(f"Rows: {json.dumps(rows)}\n{ASKED}\nIn one sentence.")], 9000).blocks)
    assert around is not None and ASKED in around.text and "lighthouse" not in around.text
    inside = question_of(
        draft([*TALK, user(f"The input:\n{json.dumps({'rows': rows, 'question': ASKED})}")], 9000).blocks
    )
    assert inside is not None and ASKED in inside.text
