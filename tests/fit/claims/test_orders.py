"""What messages say that holds for later answers, and what is otherwise from now on."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.apis.openai_chat import messages as chat
from proxy.config.rules import load_rules
from proxy.fit.claims.orders import NOTHING, TurnReader
from proxy.model.conversation import Message, Part
from tests.makers import assistant, message, user

CONVENTIONS = load_rules(None).ladders["default"].conventions


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages whose JSON was decoded."""
    seen: list[bytes] = []
    parts = chat.parts

    def watched(said: Message) -> tuple[Part, ...]:
        seen.append(said.raw)
        return parts(said)

    monkeypatch.setattr(chat, "parts", watched)
    return seen


def reader() -> TurnReader:
    return TurnReader(CONVENTIONS.orders, CONVENTIONS.reversals)


def test_a_message_is_read_once_for_orders_and_for_changes(decoded: list[bytes]) -> None:
    read, said = reader(), message(user("Never touch the lock file."))
    assert read.read(said).orders == ((0, 26),)
    assert read.read(message(user("Never touch the lock file."), 7)) == read.read(said)
    assert decoded == [said.raw]


def test_what_has_no_word_of_any_sign_is_not_even_decoded(decoded: list[bytes]) -> None:
    read = reader()
    assert read.read(message(user("The crane lifts cargo."))) is NOTHING
    assert read.read(message(assistant('Harbour, rope "and" keel.\nBerth.'))) is NOTHING
    assert not decoded


@pytest.mark.parametrize(
    ("said", "orders", "changes"),
    [
        (user("It becomes Friday."), False, True),
        (assistant("It becomes Friday."), False, True),
        (assistant("Never touch the lock file."), False, False),  # nobody is ordered about by an answer
        (user("It becomes Friday." + " We met at the old harbour by the sea." * 20), False, False),  # long
        (user("Never touch the lock file.\n" + "We met at the harbour. " * 20), True, False),
    ],
)
def test_orders_are_the_users_and_changes_are_short(said: dict[str, Any], orders: bool, changes: bool) -> None:
    found = reader().read(message(said))
    assert (bool(found.orders), found.changes) == (orders, changes)
