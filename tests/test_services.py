"""What a process serves with: made from settings and rules, and from rules and keys that change."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from proxy import services as module
from proxy.config.settings import read_settings
from proxy.errors import ConfigError
from proxy.model.outcome import Outcome
from proxy.request.wants.summaries import Summaries
from proxy.services import Loaded, Services, build
from proxy.tokens import encodings
from proxy.wire.controls import NOTHING_ASKED
from tests.serving import eventually


def services(**environment: str) -> Services:
    """Services that have served nothing."""
    return build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment}), lambda outcome: None)


def test_both_encodings_are_loaded_and_only_the_first_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "_loaded", {})
    made = services()

    async def check() -> None:
        await made.open()
        assert encodings.loaded(module.FIRST_ENCODING)
        await eventually(lambda: encodings.loaded(module.SECOND_ENCODING), 30)
        await made.close()

    asyncio.run(check())


@pytest.mark.parametrize(
    "environment",
    [
        {"PLIMSOLL_LADDER": "nobodys"},
        {"PLIMSOLL_RULES": "/no/such/folder"},
        {"PLIMSOLL_REDIS": "memcached://x"},
        {"PLIMSOLL_UPSTREAM": "http://user:password@host/v1"},
    ],
)
def test_wrong_settings_stop_the_start(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        services(**environment)
    assert "password@" not in str(raised.value)


def test_W21_the_default_upstream_counts_by_the_rows_of_its_host(tmp_path: Path) -> None:
    made = services(PLIMSOLL_UPSTREAM="https://openrouter.ai/api/v1", PLIMSOLL_RULES=str(tmp_path))
    assert made.knowledge.families.find("gpt-5-mini").name == "gpt-5-mini-routed"
    (tmp_path / "summary.txt").write_text("In one word.")

    async def check() -> None:
        made.reloader.request()
        await made.reloader.poll()

    asyncio.run(check())
    assert made.gateway.default.planner.knowledge.families.find("gpt-5-mini").name == "gpt-5-mini-routed"


# Rules and keys that change


def test_further_requests_have_the_new_rules_and_those_under_way_the_old(tmp_path: Path) -> None:
    made = services(PLIMSOLL_RULES=str(tmp_path))
    old = made.gateway
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "harbour"\ntokens = 9000\n')
    (tmp_path / "ladder.toml").write_text('[[use]]\nmodel = "harbour"\nladder = "agent"\n')
    (tmp_path / "summary.txt").write_text("In one word.")

    async def check() -> None:
        made.reloader.request()
        await made.reloader.poll()

    asyncio.run(check())
    new = made.gateway
    assert new is not old and made.reloader.valid
    for gateway, ladder, window in ((old, "default", 8192), (new, "agent", 9000)):
        planner = gateway.default.planner
        assert planner.ladder_for("harbour", NOTHING_ASKED).name == ladder
        assert planner.knowledge is gateway.default.knowledge is gateway.default.healer.knowledge
        assert gateway.default.learning.knowledge is planner.knowledge
        assert gateway.default.knowledge.known("harbour").tokens == window
    assert made.inspecting.routes is made.unfitted.routes is new.routes and made.knowledge is new.default.knowledge
    summaries = made.providers["summary"]
    assert isinstance(summaries, Summaries) and summaries.instructions == "In one word."
    assert new.default.upstream is old.default.upstream and new.reporter.observers is old.reporter.observers
    assert (new.metrics, new.budget) == (old.metrics, old.budget)
    made.metrics.observe(Outcome("chat", "passed", 200, model="harbour"))
    assert b'model="harbour"' in made.metrics.exposition()


def changed(**environment: str) -> Services:
    """A house whose keys have changed."""
    made = services(
        PLIMSOLL_SECRET="old", PLIMSOLL_SUMMARY_API_KEY="old", PLIMSOLL_DRAIN="30", PLIMSOLL_REDIS="redis://h/0"
    )
    url = {"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", "PLIMSOLL_REDIS": "redis://h/0"}
    made.adopt(Loaded(read_settings({**url, **environment}), made.rules, made.windows))
    return made


def test_new_keys_are_used_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    made = changed(PLIMSOLL_API_KEY="new", PLIMSOLL_SECRET="new", PLIMSOLL_SUMMARY_API_KEY="new")
    assert made.upstream.has_key and made.clients["summary"].upstream.has_key
    assert made.gateway.attempts.keys.extra_calls is made.extra_calls
    assert capfd.readouterr().err == ""
    made.adopt(Loaded(replace(made.settings, api_key=None, summary_api_key=None), made.rules, made.windows))
    assert not made.upstream.has_key and not made.clients["summary"].upstream.has_key


def test_what_else_has_changed_is_said_once_to_take_effect_at_the_next_start(capfd: pytest.CaptureFixture[str]) -> None:
    made = changed(PLIMSOLL_DRAIN="31", PLIMSOLL_EMBEDDINGS_API_KEY="canary")
    made.adopt(Loaded(made.settings, made.rules, made.windows))
    told = capfd.readouterr().err
    names = re.findall(r"takes effect at the next start setting=(\S+)", told)
    assert names == ["PLIMSOLL_SECRET", "PLIMSOLL_DRAIN", "PLIMSOLL_EMBEDDINGS_API_KEY"]
    assert "canary" not in told
    assert made.gateway.settings.drain == 30
