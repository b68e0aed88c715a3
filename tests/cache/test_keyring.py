from __future__ import annotations

import asyncio

import pytest

from proxy.cache import keyring as module
from proxy.cache.keyring import SECRET_BYTES, SECRET_NAME, Keyring
from proxy.cache.remote import Remote
from proxy.cache.sealing import Sealer
from proxy.observe.log import event
from tests.cache.shelf import Shelf, until


def test_a_given_secret_makes_the_seals_at_once_and_may_seal_content() -> None:
    keyring = Keyring(b"given")
    assert keyring.sealer is not None
    assert keyring.sealer.name("x", b"a") == Sealer(b"given").name("x", b"a")
    assert keyring.can_seal


def test_without_a_secret_there_are_no_seals_until_replicas_agree() -> None:
    keyring = Keyring(None)
    assert keyring.sealer is None
    assert not keyring.can_seal
    assert keyring.local.name("x", b"a") != Keyring(None).local.name("x", b"a")


def test_replicas_without_a_secret_agree_on_one_and_are_warned(capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        shelf = Shelf()
        one, two = Keyring(None, event), Keyring(None, event)
        remotes = [Remote(shelf, SECRET_NAME), Remote(shelf, SECRET_NAME)]
        for remote, keyring in zip(remotes, (one, two), strict=True):
            remote.spawn(keyring.agree_loop(remote))
        await until(lambda: one.sealer and two.sealer)
        assert one.sealer and two.sealer
        assert one.sealer.name("x", b"a") == two.sealer.name("x", b"a")
        assert len(shelf.values[SECRET_NAME]) == SECRET_BYTES
        for remote in remotes:
            await remote.close()

    asyncio.run(test())
    assert capfd.readouterr().err.count("PLIMSOLL_SECRET is not set") == 2


def test_a_backend_that_was_emptied_is_told_the_secret_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGREE_INTERVAL_S", 0.01)

    async def test() -> None:
        shelf = Shelf()
        remote, keyring = Remote(shelf, SECRET_NAME), Keyring(None)
        remote.spawn(keyring.agree_loop(remote))
        await until(lambda: keyring.sealer)
        agreed, sealer = shelf.values.pop(SECRET_NAME), keyring.sealer
        await until(lambda: SECRET_NAME in shelf.values)
        assert shelf.values[SECRET_NAME] == agreed
        assert keyring.sealer is sealer
        await remote.close()

    asyncio.run(test())


@pytest.mark.parametrize("stored", [b"", b"short", bytes(10_000)])
def test_what_cannot_be_a_secret_is_not_agreed_to(stored: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)

    async def test() -> None:
        shelf = Shelf(values={SECRET_NAME: stored})
        remote, keyring = Remote(shelf, SECRET_NAME), Keyring(None)
        remote.spawn(keyring.agree_loop(remote))
        await until(lambda: shelf.agreements > 2)
        assert keyring.sealer is None
        del shelf.values[SECRET_NAME]
        await until(lambda: keyring.sealer)
        await remote.close()

    asyncio.run(test())


def test_another_secret_of_the_operator_names_everything_anew_but_what_stays_in_the_process() -> None:
    keyring = Keyring(b"old")
    local = keyring.local
    keyring.use(b"new")
    assert keyring.sealer is not None and keyring.can_seal
    assert keyring.sealer.name("x", b"a") == Sealer(b"new").name("x", b"a")
    assert keyring.local is local
