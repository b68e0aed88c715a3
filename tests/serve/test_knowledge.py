"""What is known of a model before a plan is made: whose word counts, which caps hold, how counts are corrected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from proxy.config.rules import load_rules
from proxy.config.windows import load_windows
from proxy.fit.plan import learn, start
from proxy.serve.cache import Cache
from proxy.serve.knowledge import NOTCH, Knowledge
from proxy.serve.listing import Listing
from proxy.serve.upstream import Upstream
from proxy.tokens import encodings
from proxy.types import Facts, Ladder, Learned, Meter, Quality, Refusal, Rung, Window, replace
from tests.makers import ladder, prompt, user, words
from tests.tokens.vocabulary import write

NOBODY = "acme/harbour-9b"
LIST = b'{"data":[{"id":"acme/harbour-9b","max_model_len":4096}]}'
LEARNS, ASSUMES = ladder(), ladder(unknown="assume")
ASKED = prompt([user(words(10))], model="gpt-4")
REFUSED = Refusal("x", limit=5_000)


async def answers(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=LIST)


async def has_none(request: httpx.Request) -> httpx.Response:
    return httpx.Response(404)


def knowledge(
    limit: int | None = None, rules: Path | None = None, offline: bool = False, lists: bool = True
) -> Knowledge:
    """Knowledge as the house has it, with an upstream that knows one model more."""
    upstream = Upstream("http://upstream/v1", transport=httpx.MockTransport(answers if lists else has_none))
    windows = load_windows(load_rules(rules).windows)
    return Knowledge(limit, windows, Cache(), Listing(upstream), offline)


def facts(one: Knowledge, model: str = "gpt-4", steps: Ladder = LEARNS, cap: int | None = None) -> Facts:
    """The facts of a request."""
    return asyncio.run(one.facts(replace(ASKED, model=model), steps, cap, ()))


def allowing(*models: str) -> Ladder:
    """A ladder that may switch."""

    def stay(draft: object, known: object) -> object:
        return draft

    return ladder(Rung("switch_model", stay, models=models))  # type: ignore[arg-type]


def source(window: Window) -> tuple[int, str, bool]:
    return window.tokens, window.source, window.guessed


# Windows.


def test_the_tables_word_counts_where_nobody_knows_better() -> None:
    assert source(knowledge().known("gpt-4")) == (8_192, "litellm", False)
    assert source(knowledge().known(NOBODY)) == (8_192, "guess", True)


def test_what_a_refusal_taught_outranks_the_table_but_not_the_user(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "gpt-4"\ntokens = 7000\n')
    for rules, known in ((None, (5_000, "refusal", False)), (tmp_path, (7_000, "rules", False))):
        one = knowledge(rules=rules)
        one.cache.keep_learned("gpt-4", Learned(window=5_000))
        assert source(one.known("gpt-4")) == known


def test_who_takes_turns_only_is_told_by_rows_and_by_refusals(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('roles = [{ model = "gemma-2*", alternate = false }]\n')
    one = knowledge(rules=tmp_path)
    assert one.known("mistral-small-latest").alternates and one.known("google/gemma-3-27b-it").alternates
    assert not one.known("gpt-4").alternates and not one.known("gemma-2-9b-it").alternates
    for model in ("gpt-4", NOBODY, "gemma-2-9b-it"):
        one.cache.keep_learned(model, Learned(alternates=True))
    assert one.known("gpt-4").alternates and one.known(NOBODY).alternates and one.known(NOBODY).guessed
    assert not one.known("gemma-2-9b-it").alternates  # as the user says


def test_the_upstreams_list_counts_where_the_table_knows_nothing() -> None:
    one = knowledge()
    assert source(facts(one, NOBODY).window) == (4_096, "upstream", False)
    assert source(one.known(NOBODY)) == (4_096, "upstream", False)


def test_who_is_offline_asks_nobody() -> None:
    assert source(facts(knowledge(offline=True), NOBODY).window) == (8_192, "guess", True)


def test_that_nobody_knows_a_model_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    one = knowledge(lists=False)
    for _ in range(3):
        assert facts(one, NOBODY).window.guessed
    facts(one, NOBODY, cap=5_000)
    assert capfd.readouterr().err.count("nobody knows this model's window") == 1


@pytest.mark.parametrize(
    ("limit", "cap", "model", "steps", "window"),
    [
        (None, 3_000, "gpt-4", LEARNS, (3_000, "header", False)),
        (None, 90_000, "gpt-4", LEARNS, (8_192, "litellm", False)),
        (6_000, None, "gpt-4", LEARNS, (6_000, "limit", False)),
        (6_000, 3_000, "gpt-4", LEARNS, (3_000, "header", False)),
        (3_000, 6_000, "gpt-4", LEARNS, (3_000, "limit", False)),
        (90_000, None, "gpt-4", LEARNS, (8_192, "litellm", False)),
        (None, None, NOBODY, LEARNS, (8_192, "guess", True)),
        (None, 90_000, NOBODY, LEARNS, (90_000, "header", False)),
        (90_000, None, NOBODY, LEARNS, (90_000, "limit", False)),
        (6_000, 90_000, NOBODY, LEARNS, (6_000, "limit", False)),
        (90_000, None, NOBODY, ASSUMES, (8_192, "guess", True)),
        (6_000, None, NOBODY, ASSUMES, (6_000, "guess", True)),
        (6_000, 5_000, NOBODY, ASSUMES, (5_000, "header", False)),
    ],
)
def test_caps_hold_and_never_raise_what_is_known(
    limit: int | None, cap: int | None, model: str, steps: Ladder, window: tuple[int, str, bool]
) -> None:
    one = knowledge(limit, offline=True)
    assert source(one.window_now(model, steps, cap)) == window
    assert source(facts(one, model, steps, cap).window) == window


def test_rivals_have_windows_and_counters_of_their_own() -> None:
    found = facts(knowledge(offline=True), "gpt-4", allowing("gpt-4o", NOBODY, "gpt-4o"))
    assert [(r.model, r.window.tokens) for r in found.rivals] == [("gpt-4o", 128_000), (NOBODY, 8_192)]
    assert [r.meter().quality for r in found.rivals] == [Quality.EXACT, Quality.ESTIMATED]


def test_a_rival_that_only_the_upstreams_list_knows_is_a_rival() -> None:
    found = facts(knowledge(), "gpt-4", allowing(NOBODY), cap=100_000)
    assert [source(r.window) for r in found.rivals] == [(4_096, "upstream", False)]


def test_a_clients_cap_holds_for_rivals_but_says_nothing_of_those_that_nobody_knows() -> None:
    found = facts(knowledge(offline=True), "gpt-4", allowing("gpt-4o", NOBODY), cap=20_000)
    assert [source(r.window) for r in found.rivals] == [(20_000, "header", False), (8_192, "guess", True)]


# Counts.


def count(one: Knowledge, model: str) -> int:
    meter: Meter = one.meter(ASKED, model)
    return meter.text(words(400))


def test_a_learned_ratio_corrects_counts_and_moves_in_notches() -> None:
    one = knowledge()
    before = count(one, "claude-3-opus")
    one.cache.observe("claude-3-opus", 1.51)
    corrected = count(one, "claude-3-opus")
    assert corrected > before
    for ratio in (1.512, 1.515, 1.51):
        one.cache.observe("claude-3-opus", ratio)
        assert count(one, "claude-3-opus") == corrected
    for _ in range(100):
        one.cache.observe("claude-3-opus", 1.6)
    assert count(one, "claude-3-opus") > corrected


def test_a_ratio_between_two_notches_does_not_move_to_and_fro() -> None:
    one = knowledge()
    lesson = 1.5 + NOTCH / 2
    seen = set()
    for i in range(50):
        one.cache.observe("claude-3-opus", lesson + (0.002 if i % 2 else -0.002))
        seen.add(one.counted_as("claude-3-opus"))
    assert len(seen) == 1


def test_invented_models_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.serve.knowledge.MOST_MODELS", 10)
    one = knowledge(offline=True)
    for i in range(100):
        one.cache.observe(f"invented-{i}", 1.3)
        one.meter(ASKED, f"invented-{i}")
        facts(one, f"invented-{i}")
    assert len(one._steady) <= 10 and len(one._warned) <= 10


def test_counts_are_kept_apart_by_all_that_they_depend_on() -> None:
    one = knowledge()
    first = one.counted_as("gpt-4")
    assert one.counted_as("gpt-4") == first != one.counted_as("gpt-4o")
    one.cache.keep_learned("gpt-4", Learned(scale=1.3))
    assert one.counted_as("gpt-4") != first


def test_an_encoding_that_is_not_loaded_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "_loaded", {})
    one = knowledge()
    facts(one, "gpt-4", allowing("gpt-4o"))
    assert set(encodings._loaded) == {"cl100k_base", "o200k_base"}


def test_a_tokenizer_that_the_user_named_counts_requests(tmp_path: Path) -> None:
    write(tmp_path / "t.json")
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "acme*"\ntokenizer = "t.json"\n')
    mine, theirs = (facts(knowledge(rules=rules), "acme-7b").meter for rules in (tmp_path, None))
    assert (mine.text("harbour one"), mine.quality) == (2, Quality.CALIBRATED)
    assert theirs.quality is Quality.ESTIMATED


# What refusals teach.


def taught(
    one: Knowledge, refusal: Refusal, *, opaque: bool = False, cap: int | None = None, scale: float = 1.3
) -> Facts:
    """The facts after a refusal that taught a scale, and what the refusal names."""
    known = facts(one, cap=cap)
    wiser = replace(known, learned=Learned(refusal.limit, None, scale))
    return one.taught(wiser, known.learned, replace(ASKED, opaque=opaque), LEARNS, cap, refusal)


def test_what_a_refusal_taught_is_kept_for_the_next_request() -> None:
    one = knowledge()
    taught(one, REFUSED)
    assert one.cache.learned_now("gpt-4") == Learned(5_000, None, 1.3)


def test_a_prompt_that_cannot_be_counted_teaches_nothing_of_how_we_count() -> None:
    one = knowledge()
    assert taught(one, REFUSED, opaque=True).learned.scale == 1.3  # for this request it holds
    assert one.cache.learned_now("gpt-4") == Learned(5_000)
    other = knowledge()
    taught(other, Refusal("x"), opaque=True)
    assert other.cache.learned_now("gpt-4") == Learned()


def test_caps_stay_after_a_refusal() -> None:
    one = knowledge(limit=3_000)
    known = facts(one)
    wiser = learn(known, start(ASKED, LEARNS, known), REFUSED)
    assert wiser is not None
    assert one.taught(wiser, known.learned, ASKED, LEARNS, None, REFUSED).window.tokens == 3_000
    assert one.taught(wiser, known.learned, ASKED, LEARNS, 2_000, REFUSED).window.tokens == 2_000
    assert one.cache.learned_now("gpt-4").window == 5_000


def refused(one: Knowledge, model: str, refusal: Refusal) -> Window:
    """The window of the request that was refused, planned again."""
    known, asked = facts(one, model), replace(ASKED, model=model)
    wiser = learn(known, start(asked, LEARNS, known), refusal)
    assert wiser is not None
    return one.taught(wiser, known.learned, asked, LEARNS, None, refusal).window


@pytest.mark.parametrize("bounds", ["window", "input", "body"])
def test_a_refusal_without_figures_shrinks_a_known_window_for_its_own_request_alone(bounds: str) -> None:
    one = knowledge()
    assert refused(one, "gpt-4", Refusal("x", bounds=bounds)).tokens < 1_000
    assert one.cache.learned_now("gpt-4") == Learned() and source(one.known("gpt-4")) == (8_192, "litellm", False)


def test_a_refusal_without_figures_is_believed_for_a_while_where_nobody_knows_the_window() -> None:
    one = knowledge(lists=False)
    assert refused(one, NOBODY, Refusal("x")).source == "supposed"
    assert one.cache.learned_now(NOBODY).supposed and source(one.known(NOBODY))[1:] == ("supposed", False)


def test_a_bound_in_bytes_teaches_nothing_of_any_model() -> None:
    one = knowledge(lists=False)
    for model in (NOBODY, "gpt-4"):
        assert refused(one, model, Refusal("x", limit=900_000, bounds="body")).tokens < 1_000
        assert one.cache.learned_now(model) == Learned()


def test_what_the_upstream_lists_outranks_what_was_supposed_before() -> None:
    one = knowledge()
    one.cache.keep_learned(NOBODY, Learned(window=700, supposed=True))
    assert one.known(NOBODY).tokens == 700
    facts(one, NOBODY)  # a known window now: nobody asks for a list
    asyncio.run(one.listing.ask(NOBODY, ()))
    assert one.known(NOBODY).tokens == 4_096


def test_only_what_is_new_is_told_so_that_a_bound_taken_back_stays_away() -> None:
    one = knowledge()
    one.cache.keep_learned("gpt-4", Learned(window=5_000))
    known = facts(one)
    one.cache.keep_held("gpt-4", 5_001)  # while the request was away
    wiser = replace(known, learned=replace(known.learned, scale=1.2))
    one.taught(wiser, known.learned, ASKED, LEARNS, None, Refusal("x", prompt=20))
    assert one.cache.learned_now("gpt-4") == Learned(scale=1.2)


def test_closing_ends_a_question_that_is_under_way() -> None:
    asyncio.run(knowledge().close())
