"""What is known of a model before a plan is made: whose word counts, which caps hold, how counts are corrected."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.cache import Cache
from proxy.config.rules import load_rules
from proxy.config.windows import load_windows
from proxy.fit.learn import learn
from proxy.fit.plan import start
from proxy.model.conversation import Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof, Quality, Shape, Suspicion, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Facts, Ladder, LadderStep
from proxy.model.ports import Meter
from proxy.model.structs import replace
from proxy.request.facts import Knowledge
from proxy.tokens import encodings
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.loaded_models import LoadedModels
from proxy.upstreams.models_listing import ModelsListing
from proxy.upstreams.upstream import Upstream
from tests.cache.lessons import VOTE, counts_as
from tests.cache.lessons import teach as count_as
from tests.makers import ladder, prompt, user, words
from tests.over_httpx import OverHttpx
from tests.tokens.vocabulary import write

NOBODY = "acme/harbour-9b"
LIST = b'{"data":[{"id":"acme/harbour-9b","max_model_len":4096}]}'
LEARNS, ASSUMES = ladder(), ladder(unknown="assume")
ASKED = prompt([user(words(10))], model="gpt-4")
LONG = replace(ASKED, messages=prompt([user(words(2_300))]).messages)  # some 5,900 tokens
REFUSED = Refusal("x", limit=5_000)
TENANT = b"whoever asks"


def teach(one: Knowledge, model: str, learned: LearnedLimits) -> None:
    """As if a refusal had proved it."""
    one.cache.record_proof(model, TENANT, learned, Proof(0, 0))


def believed(one: Knowledge, model: str) -> Window:
    """The window of a model for who was refused."""
    return one.known(model, one.learned(model, TENANT))


async def answers(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=LIST)


async def has_none(request: httpx.Request) -> httpx.Response:
    return httpx.Response(404)


def knowledge(
    limit: int | None = None,
    rules: Path | None = None,
    offline: bool = False,
    lists: bool = True,
    answering: Any = None,
) -> Knowledge:
    """Knowledge as the house has it, with an upstream that knows one model more."""
    transport = httpx.MockTransport(answering or (answers if lists else has_none))
    upstream = Upstream("http://upstream/v1", link=OverHttpx(transport))
    found = load_rules(rules)
    return Knowledge(limit, load_windows(found.windows), found.families, Cache(), ModelsListing(upstream), offline)


def facts(one: Knowledge, model: str = "gpt-4", steps: Ladder = LEARNS, cap: int | None = None) -> Facts:
    """The facts of a request."""
    return asyncio.run(one.facts(replace(ASKED, model=model), steps, cap, ()))


def allowing(*models: str) -> Ladder:
    """A ladder that may switch."""

    def stay(draft: object, known: object) -> object:
        return draft

    return ladder(LadderStep("switch_model", stay, models=models))  # type: ignore[arg-type]


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
        teach(one, "gpt-4", LearnedLimits(window=5_000))
        assert source(believed(one, "gpt-4")) == known
        assert source(one.known("gpt-4"))[0] == (8_192 if rules is None else 7_000)  # others know nothing of it


def loading(one: Knowledge, **windows: int) -> Knowledge:
    """Knowledge of an upstream that has loaded these models."""

    async def told(request: httpx.Request) -> httpx.Response:
        models = [{"name": name, "context_length": window} for name, window in windows.items()]
        return httpx.Response(200, json={"models": models})

    one.loaded = LoadedModels(Upstream("http://upstream/v1", link=OverHttpx(httpx.MockTransport(told))))
    return one


def test_what_a_server_has_loaded_outranks_the_table_but_not_the_user(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "gpt-4"\ntokens = 7000\n')
    for rules, known in ((None, (6_000, "loaded", False)), (tmp_path, (7_000, "rules", False))):
        one = loading(knowledge(rules=rules), **{"gpt-4": 6_000})
        before = one.window_now("gpt-4", LEARNS, None)
        asyncio.run(one.read_loaded(()))
        assert source(one.known("gpt-4")) == known
        assert one.window_now("gpt-4", LEARNS, None) == one.known("gpt-4") and (before.source == "loaded") is False


def test_what_another_client_may_have_had_loaded_cuts_nothing_by_itself_and_overrides_no_refusal() -> None:
    one = loading(knowledge(), **{"gpt-4": 600})
    asyncio.run(one.read_loaded(()))
    assert source(facts(one).window) == (600, "loaded", True)
    assert source(facts(one, cap=3_000).window) == (3_000, "header", False)
    refused = Refusal("x", limit=600)  # the same as what is loaded, and yet proven
    sent = start(LONG, LEARNS, facts(one))
    one.prove(sent, refused, LearnedLimits(window=600), TENANT, opaque=False)
    assert source(believed(one, "gpt-4")) == (600, "refusal", False)
    teach(one, "gpt-4", LearnedLimits(window=5_000))
    assert source(believed(one, "gpt-4")) == (5_000, "refusal", False)


def test_an_upstream_is_not_asked_offline() -> None:
    one = loading(knowledge(offline=True), **{"gpt-4": 6_000})
    asyncio.run(one.read_loaded(()))
    assert source(one.known("gpt-4"))[1] == "litellm"


def test_the_window_that_a_request_has_loaded_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "gpt-4"\ntokens = 7000\n')
    one = loading(knowledge(), **{"gpt-4": 6_000})
    asyncio.run(one.read_loaded(()))
    taught = LearnedLimits(window=5_000, max_input=4_000, scale=1.5)
    own = taught.where_requested(32_768)
    assert source(one.known("gpt-4", own)) == (32_768, "request", False) and own.scale == 1.5
    assert source(one.known(NOBODY, NOTHING_LEARNED.where_requested(4_096))) == (4_096, "request", False)
    assert taught.where_requested(None) is taught
    ruled = knowledge(rules=tmp_path)
    assert [ruled.known("gpt-4", own).tokens, ruled.known("gpt-4", taught.where_requested(2_048)).tokens] == [
        7_000,
        2_048,
    ]


def test_a_refusal_of_a_window_that_a_request_chose_proves_nothing_for_others() -> None:
    for requested, proved in ((None, 5_000), (6_000, None)):
        one = knowledge()
        draft = start(LONG, LEARNS, facts(one))
        after = LearnedLimits(window=5_000, requested=requested)
        one.prove(draft, REFUSED, after, TENANT, opaque=False)
        assert one.learned("gpt-4", TENANT).window == proved


def test_other_facts_about_a_model_are_told_by_rows_and_by_refusals(tmp_path: Path) -> None:
    rows = (
        'reply = [{ model = "claude-opus-4-5", reply = "shared" }]\nreasoning = [{ model = "mine", bound = false }]\n'
    )
    (tmp_path / "windows.toml").write_text(rows)
    one = knowledge(rules=tmp_path)
    assert one.known("claude-sonnet-4-5").separate and not one.known("claude-opus-4-5").separate
    for model in ("claude-sonnet-4-5", "mine", NOBODY):
        teach(one, model, LearnedLimits(binds=True, shared=True))
    assert not believed(one, "claude-sonnet-4-5").separate and believed(one, NOBODY).binds
    assert believed(one, "mine").binds is False  # as the user says


def test_who_takes_turns_only_is_told_by_rows_and_by_refusals(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('roles = [{ model = "gemma-2*", alternate = false }]\n')
    one = knowledge(rules=tmp_path)
    assert one.known("mistral-small-latest").alternates and one.known("google/gemma-3-27b-it").alternates
    assert not one.known("gpt-4").alternates and not one.known("gemma-2-9b-it").alternates
    for model in ("gpt-4", NOBODY, "gemma-2-9b-it"):
        teach(one, model, LearnedLimits(alternates=True))
    assert believed(one, "gpt-4").alternates and believed(one, NOBODY).alternates and believed(one, NOBODY).guessed
    assert not believed(one, "gemma-2-9b-it").alternates  # as the user says


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
    assert capfd.readouterr().err.count("unknown model: its window is assumed") == 1


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
    assert [(r.model, r.window.tokens) for r in found.candidates] == [("gpt-4o", 128_000), (NOBODY, 8_192)]
    assert [r.meter().quality for r in found.candidates] == [Quality.EXACT, Quality.ESTIMATED]


def test_a_rival_that_only_the_upstreams_list_knows_is_a_rival() -> None:
    found = facts(knowledge(), "gpt-4", allowing(NOBODY), cap=100_000)
    assert [source(r.window) for r in found.candidates] == [(4_096, "upstream", False)]


def test_a_clients_cap_holds_for_rivals_but_says_nothing_of_those_that_nobody_knows() -> None:
    found = facts(knowledge(offline=True), "gpt-4", allowing("gpt-4o", NOBODY), cap=20_000)
    assert [source(r.window) for r in found.candidates] == [(20_000, "header", False), (8_192, "guess", True)]


# Counts.


def count(one: Knowledge, model: str) -> int:
    meter: Meter = one.meter(ASKED, model, one.learned(model, TENANT))
    return meter.text(words(400))


def test_a_learned_line_corrects_a_tenants_counts_and_moves_in_notches() -> None:
    one, model = knowledge(), "claude-3-opus"
    before = count(one, model)
    count_as(one.cache, model, TENANT, 1.51, 6)
    corrected = count(one, model)
    assert corrected > before
    for ratio in (1.512, 1.515, 1.51):
        count_as(one.cache, model, TENANT, ratio)
        assert count(one, model) == corrected
    count_as(one.cache, model, TENANT, 1.6, 100)
    assert count(one, model) > corrected
    assert one.learned(model, b"another") is NOTHING_LEARNED
    assert one.counted_as(model, one.learned(model, TENANT)) != one.counted_as(model)


def test_W11_a_move_is_counted_with_what_was_learned_of_the_model_that_gets_it() -> None:
    one, model, headers = knowledge(), "claude-3-opus", [(b"authorization", b"Bearer sk-1")]
    who = tenant_of(headers)
    assert one.tenant(headers, "gpt-4", (model,)) == b""  # nothing was learned
    count_as(one.cache, model, who, 1.51, 6)
    assert one.tenant(headers, "gpt-4") == b"" and one.tenant(headers, "gpt-4", (model,)) == who
    learned = one.learned(model, who)
    assert learned.correction is not None
    long = replace(LONG, model="gpt-4")
    candidate = one.candidate(long, model, allowing(model), None, one.tenant(headers, "gpt-4", (model,)))
    size = sum(len(message.raw) for message in long.messages)
    direct = one.meter(replace(long, model=model), model, one.learned_for(learned, model, size))
    assert candidate.meter().costs(long.messages) == direct.costs(long.messages)
    assert candidate.meter().costs(long.messages) != one.meter(long, model).costs(long.messages)


def test_W3_far_from_the_prompts_that_taught_it_only_the_offset_is_left_of_a_line() -> None:
    """Nothing more of a long body is sent than the window of its model holds, or than the client lets it hold."""
    one, long = knowledge(), 4 * 200_000
    for model, cap, ratio in (("claude-3-opus", None, None), ("claude-3-opus", 15_000, 1.5), ("gpt-4", None, 1.5)):
        count_as(one.cache, model, TENANT, 1.51, 6)
        known = one.learned(model, TENANT)
        near, far = (one.learned_for(known, model, size, cap).correction for size in (60_000, long))
        assert near is not None and far is not None and near.text is not None and far.text is not None
        assert near.text.ratio is not None and near.text.ratio > 1.4 and near.text.sure
        assert (far.text.ratio is None) is (ratio is None) and far.text.offset == near.text.offset
        assert far.text.share == (None if ratio is None else near.text.share)
    assert one.learned_for(NOTHING_LEARNED, "gpt-4", long) is NOTHING_LEARNED


MODELS, TENANTS = ("claude-3-opus", "gpt-4"), (b"ann", b"bob")
EVENTS = st.one_of(
    st.tuples(
        st.sampled_from(MODELS), st.sampled_from(TENANTS), st.sampled_from((1.2, 1.5)), st.sampled_from((300, 9_000))
    ),
    st.sampled_from(("forget", "key refused", "proof", "votes dropped")),
)


@given(st.lists(EVENTS, max_size=12), st.sampled_from((1_000, 30_000, 50_000, 1_000_000)))
def test_what_is_remembered_of_a_tenants_counts_is_what_was_learned(events: list[Any], size: int) -> None:
    one, proved = knowledge(), False
    for event in events:
        if event == "forget":
            one.cache.forget(MODELS[0])
        elif event == "votes dropped":
            one.cache.use_secret(b"another secret")
        elif event == "key refused":
            one.keys.refused = True
        elif event == "proof":
            teach(one, MODELS[1], LearnedLimits(window=6_000))
            proved = True
        else:
            model, tenant, ratio, tokens = event
            for _ in range(6):
                pair = tokens, round(ratio * tokens)
                one.cache.record_sample(model, tenant, Shape.TEXT, pair, one.families.find(model).start, tenant)
        for model in MODELS:
            for tenant in TENANTS:
                found = one.remembered(model, tenant, size)
                assert found in (None, one.learned_for(one.learned(model, tenant), model, size))
                assert (one.remembered(model, tenant, 0) is None) is proved


def test_what_callers_agree_on_counts_as_soon_as_the_upstream_is_known_to_check_keys() -> None:
    one = knowledge()
    for number in range(10):
        count_as(one.cache, MODELS[0], b"caller %d" % number, 1.5, VOTE, votes=True)
    assert one.remembered(MODELS[0], TENANT, 0) is NOTHING_LEARNED
    one.keys.refused = True
    found = one.remembered(MODELS[0], TENANT, 0)
    assert found is not None and counts_as(found.correction, 1.5)


def test_what_one_worker_forgets_no_other_one_remembers() -> None:
    one = knowledge()
    count_as(one.cache, MODELS[0], TENANT, 1.51, 6)
    found = one.remembered(MODELS[0], TENANT, 0)
    assert found is not None and found.correction is not None and one.remembered(MODELS[0], TENANT, 0) is found
    one.cache._records._local_invalidations.set(MODELS[0], time.time() + 1)  # as another worker does
    assert one.remembered(MODELS[0], TENANT, 0) is NOTHING_LEARNED


def test_who_asks_is_looked_at_where_counts_of_its_model_were_corrected() -> None:
    one = knowledge()
    assert one.tenant([], "claude-3-opus") == b""
    count_as(one.cache, "claude-3-opus", TENANT, 1.51)
    assert one.tenant([], "claude-3-opus") and one.tenant([], "gpt-4") == b""


def test_invented_models_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.request.facts.MOST_MODELS", 10)
    one = knowledge(offline=True)
    for i in range(100):
        count_as(one.cache, f"invented-{i}", TENANT, 1.3)
        one.meter(ASKED, f"invented-{i}")
        facts(one, f"invented-{i}")
    assert len(one._models) <= 10 and len(one._warned) <= 10


def test_counts_are_kept_apart_by_all_that_they_depend_on() -> None:
    one = knowledge()
    first = one.counted_as("gpt-4")
    assert one.counted_as("gpt-4") == first != one.counted_as("gpt-4o")
    teach(one, "gpt-4", LearnedLimits(scale=1.3))
    assert one.counted_as("gpt-4", one.learned("gpt-4", TENANT)) != one.counted_as("gpt-4") == first


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


def test_a_family_of_the_users_decides_how_a_model_is_counted(tmp_path: Path) -> None:
    row = 'name = "mine"\nmodels = ["acme-*"]\nrecipe = "classic"\nencoding = "cl100k_base"\n'
    (tmp_path / "families.toml").write_text(f'[[family]]\n{row}images = {{ formula = "flat", tokens = 9 }}\n')
    mine, theirs = (facts(knowledge(rules=rules), "acme-7b").meter for rules in (tmp_path, None))
    assert (mine.quality, theirs.quality) == (Quality.EXACT, Quality.ESTIMATED)
    assert mine.text("お誕生日おめでとう") == 9 != theirs.text("お誕生日おめでとう")


# What refusals teach.


def refused(one: Knowledge, refusal: Refusal, asked: Prompt = LONG, model: str = "gpt-4", **how: bool) -> LearnedLimits:
    """What is known for the next request of the same tenant after a refusal."""
    known, asked = facts(one, model), replace(asked, model=model)
    sent = start(asked, LEARNS, known)
    wiser = learn(known, sent, refusal)
    assert wiser is not None
    one.prove(sent, refusal, wiser.learned, TENANT, **{"opaque": False, **how})
    return one.learned(model, TENANT)


def test_what_a_refusal_proved_is_kept_for_the_tenants_next_request_with_its_proof() -> None:
    one = knowledge()
    assert refused(one, REFUSED) == LearnedLimits(5_000)
    (shown,) = one.cache.proofs("gpt-4")
    assert (shown.kind, shown.proof.value, shown.proof.rule, shown.proof.quality) == ("window", 5_000, "x", "exact")
    assert shown.proof.counted > 5_000
    assert one.learned("gpt-4", b"another") == LearnedLimits()


def test_a_row_of_the_users_is_never_overridden(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "gpt-4"\ntokens = 7000\n')
    one = knowledge(rules=tmp_path)
    assert refused(one, Refusal("x", limit=5_000, bounds="input")) == refused(one, REFUSED) == LearnedLimits()


def test_a_prompt_that_cannot_be_counted_proves_nothing_of_how_we_count() -> None:
    assert refused(knowledge(), replace(REFUSED, prompt=6_000), opaque=True) == LearnedLimits(5_000)


@pytest.mark.parametrize("bounds", ["window", "input", "body", "request"])
def test_a_refusal_without_figures_proves_nothing_of_a_known_window(bounds: str) -> None:
    assert refused(knowledge(), Refusal("x", bounds=bounds)) == LearnedLimits()


@pytest.mark.parametrize("model", [NOBODY, "gpt-4"])
def test_a_refusal_without_figures_is_a_suspicion_but_where_the_operator_knows_the_window(
    model: str, tmp_path: Path
) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "gpt-4"\ntokens = 7000\n')
    for one, found in ((knowledge(lists=False), True), (knowledge(rules=tmp_path, lists=False), model == NOBODY)):
        known = facts(one, model)
        sent, silent = start(replace(LONG, model=model), LEARNS, known), Refusal("x")
        wiser = learn(known, sent, silent)
        assert wiser is not None
        assert (one.suspicion(sent, silent, wiser.learned, opaque=False) is not None) is found
        assert refused(one, silent, model=model) == LearnedLimits()


def test_what_was_supposed_of_a_model_of_the_tables_holds_because_they_do_not_know_the_server() -> None:
    one = knowledge()
    one.cache.record_refusal("gpt-4", TENANT, (), Suspicion(5_000, 3_000), 2_000)
    assert believed(one, "gpt-4").tokens == 3_000


@pytest.mark.parametrize("bounds", ["body", "request"])
def test_what_bounds_no_window_proves_nothing_of_any_model(bounds: str) -> None:
    for model in (NOBODY, "gpt-4"):
        assert refused(knowledge(lists=False), Refusal("x", limit=900, bounds=bounds), model=model) == LearnedLimits()


def test_what_the_upstream_lists_outranks_what_was_supposed_before() -> None:
    one = knowledge()
    one.cache.record_refusal(NOBODY, TENANT, (), Suspicion(5_000, 3_000), 2_000)
    assert believed(one, NOBODY).tokens == 3_000
    asyncio.run(one.listing.load(NOBODY, ()))
    assert believed(one, NOBODY).tokens == 4_096


def test_nobody_need_know_who_asks_until_something_was_learned() -> None:
    one, headers = knowledge(), [(b"authorization", b"Bearer sk-test")]
    assert one.tenant(headers, "gpt-4") == b""
    teach(one, "gpt-4", LearnedLimits(window=5_000))
    assert one.tenant(headers, "gpt-4") == tenant_of(headers)


def test_a_list_that_is_old_is_asked_for_again_and_one_that_fails_takes_nothing_back() -> None:
    told: list[httpx.Response] = []

    async def lists(request: httpx.Request) -> httpx.Response:
        return told.pop()

    async def check() -> None:
        one = knowledge(answering=lists)
        one.cache.probe_after = 0.0
        told.append(httpx.Response(200, content=LIST))
        await one.ready(NOBODY, LEARNS, None, ())
        assert one.window_now(NOBODY, LEARNS, None).tokens == 4_096
        told.append(httpx.Response(200, content=LIST.replace(b"4096", b"8192")))
        assert await one.listed_anew(NOBODY, ())
        assert one.window_now(NOBODY, LEARNS, None).tokens == 8_192
        told.append(httpx.Response(500))
        assert not await one.listed_anew(NOBODY, ())
        assert one.window_now(NOBODY, LEARNS, None).tokens == 8_192
        one.cache.probe_after = 60.0
        assert not await one.listed_anew(NOBODY, ())  # it is not old
        told.append(httpx.Response(200, content=LIST))
        one.mark_unreachable()  # the upstream was away
        assert await one.listed_anew(NOBODY, ()) and told == []
        assert not await one.listed_anew("gpt-4", ())  # nobody asks for what is known

    asyncio.run(check())


def test_closing_ends_a_question_that_is_under_way() -> None:
    asyncio.run(knowledge().close())
