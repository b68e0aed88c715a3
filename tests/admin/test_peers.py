"""A question reaches every worker, and one that does not answer is left out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.admin import peers as module
from proxy.admin.local import Local, Question
from proxy.admin.peers import PREFIX, Peers
from proxy.observe.recent import Recent
from tests.serving import run


class Worker:
    """Answers with its number."""

    def __init__(self, number: int) -> None:
        self.recent = Recent()
        self.recent.worker = number

    def answer(self, question: Question) -> Any:
        """What a worker says."""
        if question["ask"] != "number":
            raise KeyError(question["ask"])
        return [self.recent.worker, question["with"]]


def peers(number: int, folder: Path | None) -> Peers:
    return Peers(cast(Local, Worker(number)), folder)


QUESTION = {"ask": "number", "with": {"x": "y"}}


def test_a_single_worker_asks_itself() -> None:
    async def test() -> None:
        alone = peers(0, None)
        await alone.open()
        assert await alone.ask(QUESTION) == [[0, {"x": "y"}]]
        await alone.close()

    run(test())


def test_every_worker_answers_and_the_asked_one_first(tmp_path: Path) -> None:
    async def test() -> None:
        all_of_them = [peers(number, tmp_path) for number in range(3)]
        for one in all_of_them:
            await one.open()
        assert [answer[0] for answer in await all_of_them[1].ask(QUESTION)] == [1, 0, 2]
        assert (tmp_path / f"{PREFIX}0").stat().st_mode & 0o777 == 0o600
        await all_of_them[2].close()
        assert [answer[0] for answer in await all_of_them[0].ask(QUESTION)] == [0, 1]
        for one in all_of_them[:2]:
            await one.close()
        assert list(tmp_path.iterdir()) == []

    run(test())


def test_a_worker_that_has_ended_or_hangs_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)

    async def test() -> None:
        one = peers(0, tmp_path)
        await one.open()
        (tmp_path / f"{PREFIX}7").write_text("no socket")

        async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(hangs, str(tmp_path / f"{PREFIX}8"))
        assert await one.ask(QUESTION) == [[0, {"x": "y"}]]
        server.close()
        await one.close()

    run(test())


def test_a_worker_that_replaces_another_takes_its_place(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / f"{PREFIX}1").write_text("left by a process that was killed")
        one, other = peers(0, tmp_path), peers(1, tmp_path)
        await one.open()
        await other.open()
        assert [answer[0] for answer in await one.ask(QUESTION)] == [0, 1]
        await one.close()
        await other.close()

    run(test())


@pytest.mark.parametrize(
    "sent", [b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\1x", b"\0\0\0\1\xc0", b"\0\0\0\6\x81\xa3ask\x00"]
)
def test_a_question_that_is_none_gets_no_answer(tmp_path: Path, sent: bytes) -> None:
    async def test() -> None:
        one = peers(0, tmp_path)
        await one.open()
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / f"{PREFIX}0"))
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await one.close()

    run(test())


def test_B3_an_error_that_nobody_expects_leaves_the_worker_out_and_it_answers_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        one, two = peers(0, tmp_path), peers(1, tmp_path)
        await one.open()
        await two.open()
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        with monkeypatch.context() as patch:
            for error in (TypeError, ZeroDivisionError):
                patch.setattr(two.local, "answer", lambda question, error=error: (_ for _ in ()).throw(error))
                assert await one.ask(QUESTION) == [[0, {"x": "y"}]]
        assert await one.ask(QUESTION) == [[0, {"x": "y"}], [1, {"x": "y"}]]
        assert not failures
        await one.close()
        await two.close()

    run(test())


def test_without_a_socket_the_worker_serves_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        one = peers(0, tmp_path / ("long" * 30))
        await one.open()
        assert await one.ask(QUESTION) == [[0, {"x": "y"}]]
        await one.close()

    run(test())
    assert "too long" in capsys.readouterr().err
