"""What requests cost by the table, beside what litellm itself reckons: equal, or named here with the reason.

Only this test imports litellm.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.config.model_table import FILE, table_file
from proxy.config.price_table import MODES, prices_in
from proxy.fit.money import BATCH, Prices
from proxy.model.outcome import Extra, Usage

Row = Mapping[str, Any]

CASES: Mapping[str, Usage] = {
    "plain": Usage(1_000, 100),
    "read from the cache": Usage(10_000, 100, 4_096, written=0),
    "written to the cache": Usage(10_000, 100, 2_000, written=3_000),
    "written for an hour": Usage(10_000, 100, 2_000, written=3_000, extra=Extra(written_hour=1_000)),
    "over 128k": Usage(130_000, 10, 0, written=0),
    "over 200k": Usage(250_000, 10, 1_000, written=500),
    "flex": Usage(1_000, 100, 512, written=100, tier="flex"),
    "priority": Usage(1_000, 100, 512, written=100, tier="priority"),
    "flex over 272k": Usage(300_000, 100, 512, written=100, tier="flex"),
    "priority over 272k": Usage(300_000, 100, 512, written=100, tier="priority"),
    "audio": Usage(1_000, 100, 0, written=0, extra=Extra(audio=300, audio_reply=50)),
    "thinking": Usage(1_000, 100, 0, written=0, reasoning=60),
    "batch": Usage(1_000, 100, 512, written=100, tier=BATCH),
}
TIERS = ("flex", "priority", "flex over 272k", "priority over 272k")
CACHED = ("read from the cache", "written to the cache", "written for an hour", "over 200k", *TIERS)

# Modes whose requests pass through: nothing of them is measured, so nothing is billed.
UNMEASURED = frozenset(
    "audio_speech audio_transcription evaluation extraction guardrail image_edit image_generation moderation ocr "
    "realtime rerank search vector_store video_generation".split()
)

# Where the two differ, and why ours is right or is to be known as it is.
EXCEPTIONS: Mapping[str, tuple[Callable[[str, Row, str], bool], str]] = {
    "off peak": (lambda name, row, case: "off_peak_pricing" in row, "a price by the time of day: ours is that of peak"),
    "tiers at Fireworks": (
        lambda name, row, case: row["litellm_provider"] == "fireworks_ai" and case in TIERS,
        "litellm reckons Fireworks without a tier; the table has its prices",
    ),
    "the cache at Perplexity": (
        lambda name, row, case: row["litellm_provider"] == "perplexity" and case in CACHED,
        "litellm reckons Perplexity without a cache and tiers; the table has prices for them",
    ),
    "another row": (
        lambda name, row, case: name in ("gemini-exp-1206", "perplexity/perplexity/sonar"),
        "litellm takes these names for those of other rows",
    ),
    "batches by ranges": (
        lambda name, row, case: case == "batch" and "tiered_pricing" in row,
        "litellm bills batches of these as nothing",
    ),
    "batches and the cache": (
        lambda name, row, case: case == "batch" and row.get("input_cost_per_token_batches") is None,
        "litellm bills what a batch reads from the cache as nothing where the row has no price of the cache",
    ),
}
UNKNOWN_TO_LITELLM = {"github_copilot": "litellm asks for a login before it names a price"}


def litellms_own_table() -> dict[str, Row]:
    """Of the installed litellm, which the shipped table may be newer than."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("litellm is not installed")
    found: dict[str, Row] = json.loads((Path(spec.submodule_search_locations[0]) / FILE).read_bytes())
    return found


def rows() -> list[tuple[str, Row]]:
    """The rows of modes that are measured, each set of prices of a provider once."""
    found: dict[str, tuple[str, Row]] = {}
    for name, row in litellms_own_table().items():
        if row.get("mode") in MODES:
            figures = {k: v for k, v in row.items() if "cost" in k or "pric" in k}
            named = name if any(rule[0](name, row, "") for rule in EXCEPTIONS.values()) else ""
            found.setdefault(json.dumps([row["litellm_provider"], row["mode"], named, figures]), (name, row))
    return list(found.values())


def theirs(name: str, row: Row, usage: Usage) -> float:
    import litellm
    from litellm.cost_calculator import batch_cost_calculator
    from litellm.types import utils

    extra = usage.extra or Extra()
    hour = utils.CacheCreationTokenDetails(
        ephemeral_5m_input_tokens=(usage.written or 0) - extra.written_hour,
        ephemeral_1h_input_tokens=extra.written_hour,
    )
    details = utils.PromptTokensDetailsWrapper(
        cached_tokens=usage.cached or None,
        cache_creation_tokens=usage.written or None,
        audio_tokens=extra.audio or None,
        cache_creation_token_details=hour if extra.written_hour else None,
    )
    reported = utils.Usage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=details,
        completion_tokens_details=utils.CompletionTokensDetailsWrapper(
            reasoning_tokens=usage.reasoning or None, audio_tokens=extra.audio_reply or None
        ),
    )
    provider = row["litellm_provider"]
    if usage.tier == BATCH:
        return sum(batch_cost_calculator(reported, name, provider))
    tier = usage.tier or None
    return sum(litellm.cost_per_token(name, custom_llm_provider=provider, usage_object=reported, service_tier=tier))


def as_billed(usage: Usage, found: Prices) -> Usage:
    """The case as this provider would report it: nothing is written where writing has no price."""
    return (
        usage
        if found.rates.cache_write is not None or not usage.written
        else Usage(usage.prompt, usage.completion, usage.cached, written=0, tier=usage.tier)
    )


def reason(name: str, row: Row, case: str) -> str:
    return next((why for known, why in EXCEPTIONS.values() if known(name, row, case)), "")


def test_every_mode_of_the_table_is_measured_or_passes_through() -> None:
    modes = {row.get("mode") for row in json.loads(table_file().read_bytes()).values()} - {None}
    assert {mode for mode in modes if not mode.startswith("one of")} <= MODES | UNMEASURED


@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")  # of litellm's own types, when they are imported
def test_every_row_costs_what_litellm_reckons_or_differs_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes about 15 s: litellm reckons some 25,000 costs, and its import is slow."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    compared, needed, wrong = 0, set(), []
    for name, row in rows():
        found = prices_in(name, row)
        if found is None or row["litellm_provider"] in UNKNOWN_TO_LITELLM:
            continue
        found = replace(found, cache=replace(found.cache, marked=True, bills_writes=True))
        for case, usage in CASES.items():
            billed = as_billed(usage, found)
            ours, reckoned = found.bill(billed).net, theirs(name, row, billed)
            compared += 1
            if ours == pytest.approx(reckoned, rel=1e-9, abs=1e-15):
                continue
            why = reason(name, row, case)
            needed.add(why)
            if not why:
                wrong.append((name, case, ours, reckoned))
    assert wrong == [] and compared > 10_000
    assert needed == {why for _, why in EXCEPTIONS.values()}, "an exception that nothing needs is none"


@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
def test_a_row_without_a_price_has_none_in_litellm_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or bills nothing that a request without a plan of its own has: a second, a picture, a priority."""
    for name, row in rows():
        if prices_in(name, row) is None:
            usual = row.get("input_cost_per_token"), row.get("output_cost_per_token")
            assert None in usual or row["mode"] not in MODES, name
