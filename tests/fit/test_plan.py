"""The heart: walking the ladder."""

import json

from proxy.apis.anthropic_messages.request import parse
from proxy.fit.plan import plan
from proxy.fit.steps.switch_model import Params, apply
from proxy.model.limits import Window
from proxy.model.plan import CandidateModel, Draft, Facts, LadderStep, Want
from proxy.model.structs import replace
from tests.makers import WordMeter, assistant, contents, draft, facts, ladder, prompt, user, words


def halve(found: Draft, known: Facts) -> Draft:
    return found.with_blocks(found.blocks[len(found.blocks) // 2 :])


def drop_first(found: Draft, known: Facts) -> Draft:
    return found.with_blocks(found.blocks[1:])


def never(found: Draft, known: Facts) -> Draft:
    raise AssertionError("it was not this step's turn")


def same(found: Draft, known: Facts) -> Draft:
    return found


LONG = [user(words(50)) for _ in range(4)]


def test_what_fits_is_left_alone() -> None:
    found = plan(prompt(LONG), ladder(LadderStep("never", never), LadderStep("later", never, at=0.99)), facts(4000))
    assert found.fits and not found.changed and found.draft is found.before


def test_what_fits_to_the_token_is_left_alone() -> None:
    exact = prompt(LONG, max_tokens=10)  # 219 tokens
    assert not plan(exact, ladder(LadderStep("never", never)), facts(229)).changed
    assert plan(exact, ladder(LadderStep("halve", halve)), facts(228)).changed


def test_what_the_upstream_shortens_itself_is_not_cut() -> None:
    managed = replace(prompt(LONG, max_tokens=10), managed=True)
    found = plan(managed, ladder(LadderStep("never", never)), facts(100))
    assert found.trusting and found.fits and not found.changed


def test_messages_that_a_cut_left_in_the_wrong_place_are_dropped_at_the_end() -> None:
    told = [user("a"), {"role": "system", "content": words(20)}, assistant("b"), user("c")]
    asked = parse(json.dumps({"model": "m", "messages": told}).encode())
    gone = LadderStep("gone", lambda found, known: found.with_blocks([b for i, b in enumerate(found.blocks) if i != 1]))
    found = plan(asked, ladder(gone), facts(40))
    assert [note.step for note in found.notes] == ["gone", "drop_misplaced"]
    assert [m.index for m in found.draft.messages] == [0, 3]


def test_a_step_without_at_acts_when_it_does_not_fit() -> None:
    found = plan(prompt(LONG, max_tokens=10), ladder(LadderStep("halve", halve)), facts(200))
    assert found.fits
    assert [(n.step, n.tokens_before, n.tokens_after) for n in found.notes] == [("halve", 219, 111)]


def test_a_step_with_at_acts_from_that_load_though_it_fits() -> None:
    found = plan(prompt(LONG, max_tokens=10), ladder(LadderStep("halve", halve, at=0.5)), facts(400))
    assert [n.step for n in found.notes] == ["halve"]


def test_thresholds_compare_the_draft_as_it_stands_unless_the_step_compares_the_original() -> None:
    steps = (
        LadderStep("halve", halve, at=0.5),
        LadderStep("now", never, at=0.5),
        LadderStep("original", halve, at=0.5, of_original=True),
    )
    assert [n.step for n in plan(prompt(LONG, max_tokens=10), ladder(*steps), facts(400)).notes] == [
        "halve",
        "original",
    ]


def test_a_step_that_changes_nothing_is_not_noted() -> None:
    assert plan(prompt(LONG, max_tokens=10), ladder(LadderStep("same", same)), facts(100)).notes == ()


def test_what_no_step_made_is_made_in_the_end_and_noted_with_what_it_costs() -> None:
    def late(found: Draft, known: Facts) -> Draft:
        short = found.with_blocks(found.blocks[:1]).blocks[0]
        return found.with_blocks([replace(block, later=lambda room: short, most=60) for block in found.blocks[:2]])

    found = plan(prompt(LONG, max_tokens=10), ladder(LadderStep("late", late)), facts(200))
    assert found.draft.prompt == 111 and all(block.later is None for block in found.draft.blocks)
    assert [(n.tokens_before, n.tokens_after) for n in found.notes] == [(219, 111)]


def test_what_was_thought_to_fit_is_made_before_it_is_believed() -> None:
    def late(found: Draft, known: Facts) -> Draft:
        return found.with_blocks(
            [replace(block, later=lambda room, block=block: block, most=9) for block in found.blocks]
        )

    found = plan(prompt(LONG, max_tokens=10), ladder(LadderStep("late", late), LadderStep("halve", halve)), facts(200))
    assert found.fits and [(n.tokens_before, n.tokens_after) for n in found.notes] == [(219, 219), (219, 111)]


def test_a_step_that_only_needed_what_an_earlier_one_decided_is_not_noted() -> None:
    def late(found: Draft, known: Facts) -> Draft:
        short = found.blocks[0]
        return found.with_blocks([replace(block, later=lambda room: short, most=60) for block in found.blocks[:2]])

    looks = LadderStep("looks", lambda found, known: found.made())
    found = plan(
        prompt(LONG, max_tokens=10), ladder(LadderStep("late", late), looks, LadderStep("halve", halve)), facts(100)
    )
    assert [(n.step, n.tokens_before, n.tokens_after) for n in found.notes] == [("late", 219, 111), ("halve", 111, 57)]


def test_a_want_stops_the_walk_and_is_handed_out() -> None:
    want = Want("summary", "k")
    found = plan(
        prompt(LONG, max_tokens=9), ladder(LadderStep("ask", lambda d, f: want), LadderStep("never", never)), facts(100)
    )
    assert found.want is want


def test_steps_can_go_back_to_what_the_client_sent() -> None:
    seen = []

    def look(found: Draft, known: Facts) -> Draft:
        seen.append(known.original)
        return found

    found = plan(
        prompt(LONG, max_tokens=10), ladder(LadderStep("halve", halve), LadderStep("look", look, at=0.0)), facts(200)
    )
    assert seen == [found.before]


def test_a_guessed_window_cuts_nothing_unless_the_ladder_assumes_it() -> None:
    guess = replace(facts(100), window=Window(100, guessed=True))
    trusting = plan(prompt(LONG), ladder(LadderStep("never", never)), guess)
    assert trusting.fits and trusting.trusting and not trusting.changed
    assert plan(prompt(LONG), ladder(LadderStep("halve", halve), unknown="assume"), guess).changed


def test_what_a_cut_made_neighbours_is_joined_and_noted_for_a_model_that_takes_turns() -> None:
    def cut(found: Draft, known: Facts) -> Draft:
        return found.with_blocks([found.blocks[0], *found.blocks[2:]])

    told = [user(words(9)), assistant(words(900)), user("b"), assistant("c"), user("d")]
    known = facts(100)
    for alternates, sent_ in ((False, 4), (True, 3)):
        one = replace(known, window=replace(known.window, alternates=alternates))
        found = plan(prompt(told, max_tokens=50), ladder(LadderStep("cut", cut)), one)
        assert found.fits and len(list(found.draft.messages)) == sent_
        assert [n.step for n in found.notes] == ["cut", "join_turns"][: 1 + alternates]
        assert found.notes[-1].tokens_after == found.draft.prompt


def test_messages_are_only_dropped_whole_and_said_so() -> None:
    found = draft([user("a"), user("b")], 100)
    assert contents(found) == ["a", "b"]


def test_W11_a_request_that_is_moved_uncut_names_no_step_that_was_tried_before() -> None:
    big = CandidateModel("big", Window(4000), lambda: WordMeter(ratio=2.0))
    known = replace(facts(160), candidates=(big,))
    to_big = LadderStep("switch_model", lambda found, known: apply(found, known, Params(("big",))))
    found = plan(prompt(LONG, max_tokens=10), ladder(LadderStep("tenth", drop_first), to_big), known)
    assert [n.step for n in found.notes] == ["switch_model"] and len(found.drafts) == 1
    assert found.draft.model == "big" and len(contents(found.draft)) == 4
    assert (
        found.notes[0].tokens_after
        == found.draft.billed
        == plan(
            prompt(LONG, model="big", max_tokens=10), ladder(), replace(facts(4000), meter=WordMeter(ratio=2.0))
        ).before.billed
    )


def test_a_request_that_is_moved_after_a_cut_names_the_cut() -> None:
    small = CandidateModel("big", Window(240), WordMeter)
    known = replace(facts(150), candidates=(small,))
    to_small = LadderStep("switch_model", lambda found, known: apply(found, known, Params(("big",))))
    found = plan(prompt(LONG, max_tokens=10), ladder(LadderStep("tenth", drop_first), to_small), known)
    assert [n.step for n in found.notes] == ["tenth", "switch_model"] and len(contents(found.draft)) == 3
