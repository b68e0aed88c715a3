"""The heart: walking the ladder, and learning from refusals."""

from proxy.fit.plan import STINT, apply_learned, learn, plan
from proxy.types import Draft, Facts, Learned, Refusal, Rung, Want, Window, replace
from tests.makers import assistant, contents, draft, facts, ladder, prompt, user, words


def halve(found: Draft, known: Facts) -> Draft:
    return found.with_blocks(found.blocks[len(found.blocks) // 2 :])


def never(found: Draft, known: Facts) -> Draft:
    raise AssertionError("it was not this step's turn")


def same(found: Draft, known: Facts) -> Draft:
    return found


LONG = [user(words(50)) for _ in range(4)]


def test_what_fits_is_left_alone() -> None:
    found = plan(prompt(LONG), ladder(Rung("never", never), Rung("later", never, at=0.99)), facts(4000))
    assert found.fits and not found.changed and found.draft is found.before


def test_what_fits_to_the_token_is_left_alone() -> None:
    exact = prompt(LONG, max_tokens=10)  # 219 tokens
    assert not plan(exact, ladder(Rung("never", never)), facts(229)).changed
    assert plan(exact, ladder(Rung("halve", halve)), facts(228)).changed


def test_a_step_without_at_acts_when_it_does_not_fit() -> None:
    found = plan(prompt(LONG, max_tokens=10), ladder(Rung("halve", halve)), facts(200))
    assert found.fits
    assert [(n.step, n.tokens_before, n.tokens_after) for n in found.notes] == [("halve", 219, 111)]


def test_a_step_with_at_acts_from_that_load_though_it_fits() -> None:
    found = plan(prompt(LONG, max_tokens=10), ladder(Rung("halve", halve, at=0.5)), facts(400))
    assert [n.step for n in found.notes] == ["halve"]


def test_thresholds_compare_the_draft_as_it_stands_unless_the_step_compares_the_original() -> None:
    rungs = (
        Rung("halve", halve, at=0.5),
        Rung("now", never, at=0.5),
        Rung("original", halve, at=0.5, of_original=True),
    )
    assert [n.step for n in plan(prompt(LONG, max_tokens=10), ladder(*rungs), facts(400)).notes] == [
        "halve",
        "original",
    ]


def test_a_step_that_changes_nothing_is_not_noted() -> None:
    assert plan(prompt(LONG, max_tokens=10), ladder(Rung("same", same)), facts(100)).notes == ()


def test_what_no_step_made_is_made_in_the_end_and_noted_with_what_it_costs() -> None:
    def late(found: Draft, known: Facts) -> Draft:
        short = found.with_blocks(found.blocks[:1]).blocks[0]
        return found.with_blocks([replace(block, later=lambda: short, most=60) for block in found.blocks[:2]])

    found = plan(prompt(LONG, max_tokens=10), ladder(Rung("late", late)), facts(200))
    assert found.draft.prompt == 111 and all(block.later is None for block in found.draft.blocks)
    assert [(n.tokens_before, n.tokens_after) for n in found.notes] == [(219, 111)]


def test_what_was_thought_to_fit_is_made_before_it_is_believed() -> None:
    def late(found: Draft, known: Facts) -> Draft:
        return found.with_blocks([replace(block, later=lambda block=block: block, most=9) for block in found.blocks])

    found = plan(prompt(LONG, max_tokens=10), ladder(Rung("late", late), Rung("halve", halve)), facts(200))
    assert found.fits and [(n.tokens_before, n.tokens_after) for n in found.notes] == [(219, 219), (219, 111)]


def test_a_step_that_only_needed_what_an_earlier_one_decided_is_not_noted() -> None:
    def late(found: Draft, known: Facts) -> Draft:
        short = found.blocks[0]
        return found.with_blocks([replace(block, later=lambda: short, most=60) for block in found.blocks[:2]])

    looks = Rung("looks", lambda found, known: found.made())
    found = plan(prompt(LONG, max_tokens=10), ladder(Rung("late", late), looks, Rung("halve", halve)), facts(100))
    assert [(n.step, n.tokens_before, n.tokens_after) for n in found.notes] == [("late", 219, 111), ("halve", 111, 57)]


def test_a_want_stops_the_walk_and_is_handed_out() -> None:
    want = Want("summary", "k")
    found = plan(prompt(LONG, max_tokens=9), ladder(Rung("ask", lambda d, f: want), Rung("never", never)), facts(100))
    assert found.want is want


def test_steps_can_go_back_to_what_the_client_sent() -> None:
    seen = []

    def look(found: Draft, known: Facts) -> Draft:
        seen.append(known.original)
        return found

    found = plan(prompt(LONG, max_tokens=10), ladder(Rung("halve", halve), Rung("look", look, at=0.0)), facts(200))
    assert seen == [found.before]


def test_a_guessed_window_cuts_nothing_unless_the_ladder_assumes_it() -> None:
    guess = replace(facts(100), window=Window(100, guessed=True))
    trusting = plan(prompt(LONG), ladder(Rung("never", never)), guess)
    assert trusting.fits and trusting.trusting and not trusting.changed
    assert plan(prompt(LONG), ladder(Rung("halve", halve), unknown="assume"), guess).changed


def sent(window: int = 1000, guessed: bool = False, max_tokens: int = 100) -> tuple[Facts, Draft]:
    known = replace(facts(window), window=Window(window, guessed=guessed))
    return known, plan(prompt(LONG, max_tokens=max_tokens), ladder(), known).draft


def test_a_refusal_teaches_the_window_it_names() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=300, prompt=219))
    assert taught is not None and taught.window.tokens == 300 and taught.learned == Learned(window=300)
    assert taught.window.source == "refusal"


def test_a_refusal_teaches_the_bound_on_the_prompt_alone() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=200, bounds="input"))
    assert taught is not None and (taught.window.tokens, taught.window.max_input) == (1000, 200)


def test_a_refusal_that_counts_more_than_we_did_scales_our_counts() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=1000, prompt=438))
    assert taught is not None and taught.learned.scale == 2.0
    assert taught.meter.costs(prompt(LONG).messages)[:1] == (108,)


def test_the_prompt_is_worked_out_from_a_total() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=1000, total=538, completion=100))
    assert taught is not None and taught.learned.scale == 2.0


def test_a_completion_that_the_refusal_names_goes_before_what_was_sent() -> None:
    known, what = sent()
    for said, prompt_tokens in ((Refusal("r", total=438, completion=0), 438), (Refusal("r", total=538), 438)):
        taught = learn(known, what, said)
        assert taught is not None and taught.learned.scale == prompt_tokens / 219
    unlimited = replace(what, reply=None)
    taught = learn(known, unlimited, Refusal("r", total=438, completion=0))
    assert taught is not None and taught.learned.scale == 2.0


def test_a_count_that_cannot_be_true_scales_nothing() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=300, prompt=219 * 9))
    assert taught is not None and taught.learned == Learned(window=300)


def test_a_count_cut_short_teaches_more_than_it_says() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=1000, prompt=438, at_least=True))
    assert taught is not None and taught.learned.scale > 2.0


def test_an_excess_alone_gives_the_window() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", excess=19))
    assert taught is not None and taught.window.tokens == 300


def test_a_guessed_window_is_8192_where_the_refusal_names_none() -> None:
    known, what = sent(window=8192, guessed=True, max_tokens=9000)
    taught = learn(known, what, Refusal("r"))
    assert taught is not None and taught.window.tokens == 8192 and not taught.window.guessed


def test_a_refusal_without_figures_teaches_less_than_was_sent() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r"))
    assert taught is not None and taught.window.tokens == int(STINT * 319)
    assert taught.learned.supposed and taught.window.source == "supposed"


def test_a_figure_that_follows_is_no_supposition_any_more() -> None:
    known, what = sent()
    once = learn(known, what, Refusal("r"))
    assert once is not None
    twice = learn(once, replace(what, window=once.window), Refusal("r", limit=150))
    assert twice is not None and twice.learned == Learned(window=150)


def test_a_bound_in_bytes_is_none_in_tokens() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=300, prompt=900, bounds="body"))
    assert taught is not None and taught.learned == Learned(window=int(STINT * 319), supposed=True)


def test_a_guess_is_no_bound_on_the_prompt_alone() -> None:
    known, what = sent(window=8192, guessed=True, max_tokens=9000)
    taught = learn(known, what, Refusal("r", bounds="input"))
    assert taught is not None and taught.learned == Learned(window=8192, supposed=True)


def test_a_refusal_of_what_cannot_be_smaller_teaches_nothing() -> None:
    known, what = sent(window=1, max_tokens=1)
    known = replace(known, learned=Learned(window=1))
    assert learn(known, what, Refusal("r")) is None


def test_a_refusal_of_neighbours_teaches_that_roles_alternate_where_they_did_not() -> None:
    known, refusal = facts(1000), Refusal("r", bounds="roles")
    assert learn(known, draft([user("a")], 1000), refusal) is None  # they did: it means something else
    users = draft([user("a"), user("b")], 1000)
    taught = learn(known, users, refusal)
    assert taught is not None and taught.window.alternates and taught.learned == Learned(alternates=True)
    assert taught.window.tokens == 1000 and learn(taught, users, refusal) is None


def test_what_a_cut_made_neighbours_is_joined_and_noted_for_a_model_that_takes_turns() -> None:
    def cut(found: Draft, known: Facts) -> Draft:
        return found.with_blocks([found.blocks[0], *found.blocks[2:]])

    told = [user(words(9)), assistant(words(900)), user("b"), assistant("c"), user("d")]
    known = facts(100)
    for alternates, sent_ in ((False, 4), (True, 3)):
        one = replace(known, window=replace(known.window, alternates=alternates))
        found = plan(prompt(told, max_tokens=50), ladder(Rung("cut", cut)), one)
        assert found.fits and len(list(found.draft.messages)) == sent_
        assert [n.step for n in found.notes] == ["cut", "join_turns"][: 1 + alternates]
        assert found.notes[-1].tokens_after == found.draft.prompt


def test_what_was_learned_lies_over_the_table() -> None:
    known = apply_learned(facts(1000, max_input=900), Learned(window=500, max_input=2000, scale=1.5))
    assert (known.window.tokens, known.window.max_input) == (2000, 900)
    assert known.meter.text("one two") == 3


def test_messages_are_only_dropped_whole_and_said_so() -> None:
    found = draft([user("a"), user("b")], 100)
    assert contents(found) == ["a", "b"]
