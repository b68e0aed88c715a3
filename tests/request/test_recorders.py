"""A recorder is there where the settings ask for it; callers have stable names that tell nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from proxy.config.settings import read_settings
from proxy.observe.metrics.groups import OTHER
from proxy.request.callers import hash_of
from proxy.request.recorders import ModelNames, Senders, make_recorder
from proxy.tokens.families import BUILT_IN
from proxy.wire.headers import QUERY


def events(message: str, **figures: object) -> None:
    """Nobody."""


def test_nothing_is_recorded_unless_a_folder_is_set(tmp_path: Path) -> None:
    assert make_recorder(read_settings({}), BUILT_IN, events, str) is None
    assert make_recorder(read_settings({"PLIMSOLL_RECORD": str(tmp_path)}), BUILT_IN, events, str) is not None
    assert not list(tmp_path.iterdir())


def test_a_caller_has_one_name_which_depends_on_the_secret() -> None:
    one, same, other = (Senders(key * 32).of for key in (b"1", b"1", b"2"))
    mine = ((b"host", b"a"), (b"authorization", b"Bearer sk-1234567890"))
    assert one(mine).name == one(((b"host", b"b"), mine[1])).name == same(mine).name
    assert one(mine).name != one(((b"authorization", b"Bearer sk-1234567891"),)).name
    assert one(mine).name != other(mine).name
    assert "sk" not in one(mine).name and len(one(mine).name) == 16


def test_a_caller_has_the_hash_of_its_key_that_rules_compare_where_there_is_a_secret(tmp_path: Path) -> None:
    mine = ((b"authorization", b"Bearer sk-1234567890"),)
    assert Senders(b"1" * 32, partial(hash_of, b"secret")).of(mine).hashes == (hash_of(b"secret", b"sk-1234567890"),)
    assert Senders(b"1" * 32).of(mine).hashes == ()


def test_a_model_that_no_table_knows_is_named_by_a_hash() -> None:
    """Of a name with words of the client only what the table calls it stays."""
    names = ModelNames(
        b"1" * 32, lambda model: "gpt-4o" if "gpt-4o" in model else "llama-*" if "llama" in model else OTHER
    )
    assert names.of("gpt-4o", "a") == names.of("me@x.example/gpt-4o", "b") == "gpt-4o"
    for model in ("me@x.example", "sk-1234567890", "my llama", "llama", "\ud800"):
        assert names.of(model, "a").startswith("model-") and model not in names.of(model, "a")
    assert names.of("mine", "a") == names.of("mine", "a") != names.of("mine", "b")
    assert names.of("mine", "a") != ModelNames(b"2" * 32, lambda model: OTHER).of("mine", "a")
    assert names.of("", "a") == ""


def test_who_sends_no_credential_has_no_name() -> None:
    assert Senders(b"1" * 32).of(((b"host", b"a"), (b"cookie", b"theme=dark"))).name == ""


def test_credentials_are_known_without_their_scheme_so_that_no_body_repeats_them() -> None:
    senders = Senders(b"1" * 32).of
    assert senders(((b"authorization", b"Bearer  sk-1234567890 "),)).keys == (b"sk-1234567890",)
    assert senders(((b"x-api-key", b"sk-1234567890"), (b"api-key", b"short"))).keys == (b"sk-1234567890",)
    assert senders(((QUERY, b"key=AIza12345678&alt=sse"),)).keys == (b"AIza12345678",)
