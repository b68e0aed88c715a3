"""Looking at answers before the client has any of them: what is read, and what is waited for."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.apis.openai_responses import API as RESPONSES
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.http.client.answer import Answer
from proxy.model.api import Api
from proxy.model.limits import Margin, Quality, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Mode
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.request import refusal_detection as module
from proxy.request.refusal_detection import RefusalDetector, hold_seconds, plainly, unreadable
from proxy.request.stages import Counted, Descent, Planned, Received, Scanned
from proxy.wire.headers import Header
from proxy.wire.refusals import Rules
from proxy.wire.response_prefix import ResponsePrefix, read_prefix
from proxy.wire.tap import Tap
from tests.makers import facts, ladder, prompt, user

LOOKING = RefusalDetector(load_rules(None).refusals)
ERROR = b'{"error":{"message":"This model\'s maximum context length is 4096 tokens.","code":null}}'
JSON = (b"content-type", b"application/json; charset=utf-8")
EVENTS = (b"content-type", b"Text/Event-Stream; charset=utf-8")
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
HI = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
NEVER = b"never"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes at all comes in time, however busy the machine is."""
    monkeypatch.setattr(module, "FIRST_EVENT_S", 20.0)


class Reply:
    """An upstream's reply: its pieces come one by one; after NEVER nothing comes any more."""

    def __init__(self, status: int, headers: list[Header], *pieces: bytes) -> None:
        self.status, self.headers, self.pieces = status, headers, list(pieces)

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        if self.pieces and self.pieces[0] is NEVER:
            await asyncio.sleep(3_600)
        return self.pieces.pop(0) if self.pieces else b""

    async def pipe_to(self, sink: Any) -> None:
        return

    def buffered_body(self) -> bytes | None:
        return None

    async def aclose(self) -> None:
        """Nothing to end."""


def look(reply: Reply, near: bool = True) -> tuple[bytes, Refusal | None, list[bytes]]:
    """What was seen, the refusal in it, and what was not read."""

    async def looked() -> tuple[bytes, Refusal | None]:
        return await asyncio.wait_for(LOOKING.at(API, Answer(reply), near), 30)

    seen, refusal = asyncio.run(looked())
    return seen, refusal, reply.pieces


def test_an_error_is_read_whole_and_understood() -> None:
    seen, refusal, left = look(Reply(400, [JSON], ERROR[:20], ERROR[20:]))
    assert (seen, left) == (ERROR, []) and refusal is not None and refusal.limit == 4096


def test_an_encoded_error_is_understood_and_kept_as_it_came() -> None:
    packed = gzip.compress(ERROR)
    seen, refusal, _ = look(Reply(400, [JSON, (b"content-encoding", b"GZIP")], packed))
    assert seen == packed and refusal is not None
    seen, refusal, _ = look(Reply(400, [JSON, (b"content-encoding", b"br")], b"\x0b\x02"))
    assert (seen, refusal) == (b"\x0b\x02", None)


def test_of_a_long_error_only_the_beginning_is_read() -> None:
    pieces = [b"x" * 50_000] * 10
    seen, refusal, left = look(Reply(500, [], *pieces))
    assert (len(seen), refusal, len(left)) == (100_000, None, 8)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, [(b"content-type", b"audio/mpeg")]),
        (200, []),
        (201, [JSON]),
        (302, [JSON]),
        (200, [JSON, (b"content-encoding", b"gzip")]),
        (200, [EVENTS, (b"content-encoding", b"gzip")]),
        (200, [JSON, (b"content-length", b"5000")]),
    ],
)
def test_what_can_be_no_refusal_is_not_read(status: int, headers: list[Header]) -> None:
    assert look(Reply(status, headers, NEVER)) == (b"", None, [NEVER])


def test_a_short_answer_is_read_whole() -> None:
    finished = json.dumps({"choices": [{"message": {"content": ""}, "finish_reason": "model_context_window_exceeded"}]})
    body = finished.encode()
    length = (b"content-length", b"%d" % len(body))
    seen, refusal, _ = look(Reply(200, [JSON, length], body[:30], body[30:]))
    assert seen == body and refusal is not None


def test_of_an_answer_without_a_length_only_what_comes_first_is_read() -> None:
    assert look(Reply(200, [JSON], b"\n", NEVER)) == (b"\n", None, [NEVER])


@pytest.mark.parametrize("near", [True, False])
def test_content_is_passed_on_at_once(near: bool) -> None:
    assert look(Reply(200, [EVENTS], ROLE + HI, NEVER), near) == (ROLE + HI, None, [NEVER])


@pytest.mark.usefixtures("patient")
def test_what_has_no_content_yet_waits_only_where_a_refusal_is_near() -> None:
    assert look(Reply(200, [EVENTS], ROLE, NEVER), near=False) == (ROLE, None, [NEVER])
    seen, refusal, _ = look(Reply(200, [EVENTS], ROLE, b"data: " + ERROR + b"\n\n"))
    assert seen.startswith(ROLE) and refusal is not None
    assert look(Reply(200, [EVENTS], ROLE, HI, NEVER)) == (ROLE + HI, None, [NEVER])


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("near", [True, False])
def test_comments_and_pieces_wait_for_the_first_event(near: bool) -> None:
    told = b"data: " + ERROR + b"\n\n"
    seen, refusal, _ = look(Reply(200, [EVENTS], b": wait\n\n", told[:40], told[40:]), near)
    assert seen == b": wait\n\n" + told and refusal is not None


def test_nothing_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_EVENT_S", 0.02)
    assert look(Reply(200, [EVENTS], b": wait\n\n", NEVER)) == (b": wait\n\n", None, [NEVER])


@pytest.mark.usefixtures("patient")
def test_nothing_is_gathered_without_end() -> None:
    comment = b": " + b"x" * 30_000 + b"\n\n"
    seen, refusal, left = look(Reply(200, [EVENTS], *[comment] * 10))
    assert (len(seen), refusal, len(left)) == (3 * len(comment), None, 7)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("pieces", [(), (b": wait\n\n",), (ROLE,)])
def test_a_stream_that_ends_before_it_says_anything_is_no_refusal(pieces: tuple[bytes, ...]) -> None:
    assert look(Reply(200, [EVENTS], *pieces)) == (b"".join(pieces), None, [])


def test_only_a_refusal_that_cannot_be_read_is_worth_another_question() -> None:
    def answer(status: int, *coding: bytes) -> Answer:
        return Answer(Reply(status, [(b"content-encoding", c) for c in coding]))

    assert unreadable(answer(400, b"br")) and unreadable(answer(413, b"zstd"))
    for readable in (
        answer(400),
        answer(400, b"gzip"),
        answer(400, b"identity"),
        answer(200, b"br"),
        answer(429, b"br"),
    ):
        assert not unreadable(readable)


def test_another_question_asks_for_plain_text() -> None:
    asked = [(b"accept-encoding", b"br"), (b"x", b"y"), (b"accept-encoding", b"zstd")]
    assert plainly(asked) == [(b"x", b"y"), (b"accept-encoding", b"identity")]


CREATED = b'data: {"type":"response.created","response":{"instructions":"%b"}}\n\n' % (b"x" * 90_000)
FAILED = b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","error":%b}}\n\n'
TOO_LONG = b'{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}'


def test_events_that_repeat_a_long_request_are_held_back_if_their_api_refuses_after_them() -> None:
    async def looked(seconds: float | None) -> tuple[bytes, Refusal | None]:
        reply = Reply(200, [EVENTS], CREATED, CREATED, FAILED % TOO_LONG)
        return await asyncio.wait_for(LOOKING.at(RESPONSES, Answer(reply), True, seconds), 20)

    seen, refusal = asyncio.run(looked(10.0))
    assert refusal is not None and seen.startswith(CREATED * 2)
    assert asyncio.run(looked(None)) == (CREATED, None)


def request(prompt: int | None, *, background: bool = False, window: int = 1000, api: Api = RESPONSES) -> Planned:
    """A request that was counted so, or not at all."""
    total = None if prompt is None else Total(prompt, Margin(), Quality.EXACT, 1)
    scanned = Scanned(b"", Scan("m", None, True, None, background=background))
    return Planned(Received(api, Mode.FIT), b"", scanned, Counted(Window(window), total))


def test_events_wait_long_only_near_the_window_and_not_for_a_client_that_need_not_wait() -> None:
    assert hold_seconds(request(900)) == hold_seconds(request(None)) == RESPONSES.hold_s > module.FIRST_EVENT_S
    assert hold_seconds(request(300)) == hold_seconds(request(900, api=API)) == module.FIRST_EVENT_S
    assert hold_seconds(request(900, background=True)) == 0
    assert hold_seconds(Planned(Received(RESPONSES, Mode.FIT))) == 0
    asked, known = prompt([user("one two three")]), facts(10_000)
    made = plan(asked, ladder(), known)
    planned = replace(request(900), descent=Descent(asked, known, made))
    assert hold_seconds(planned) == module.FIRST_EVENT_S
    assert (
        hold_seconds(replace(planned, descent=Descent(asked, known, replace(made, trusting=True)))) == RESPONSES.hold_s
    )


def test_events_wait_long_for_a_model_that_refused_its_caller_before() -> None:
    assert hold_seconds(request(300), doubtful=True) == RESPONSES.hold_s
    assert hold_seconds(request(300, background=True), doubtful=True) == 0
    detector = RefusalDetector(LOOKING.rules)
    mine, other = [(b"authorization", b"Bearer a")], [(b"authorization", b"Bearer b")]
    assert not detector.has_refused(mine, "m")
    detector.remember(mine, "m")
    detector.remember(other, "m" * 10_000)
    asked = [(mine, "m"), (mine, "n"), (other, "m"), (other, "m" * 10_000)]
    assert [detector.has_refused(*one) for one in asked] == [True, False, False, False]
    detector.remember([*mine, (b"content-length", b"1000")], "m")
    sizes = [[*mine, (b"content-length", size)] for size in (b"499", b"500", b"2000")]
    assert [detector.has_refused(headers, "m") for headers in sizes] == [False, True, True]


def test_what_is_longer_than_all_that_its_model_accepted_from_its_caller_is_untried() -> None:
    detector, size = RefusalDetector(LOOKING.rules), module.LEAST_UNTRIED

    def asked(name: str = "m", key: bytes = b"a", api: Api = RESPONSES, stream: bool = True) -> Planned:
        received = Received(api, Mode.FIT, headers=[(b"authorization", key)])
        return Planned(received, b"", Scanned(b"", Scan(name, None, stream, None)))

    assert detector.is_untried(asked(), size) and not detector.is_untried(asked(), size - 1)
    assert not detector.is_untried(asked(api=API), size) and not detector.is_untried(asked(stream=False), size)
    detector.accept(asked(), size + 10)
    detector.accept(asked(), size)  # which took longer than the longer one
    assert not detector.is_untried(asked(), size + 10) and detector.is_untried(asked(), size + 11)
    assert detector.is_untried(asked(key=b"b"), size) and detector.is_untried(asked("n"), size)
    detector.accept(asked("m" * 10_000), size)
    assert detector.is_untried(asked("m" * 10_000), size)


@pytest.mark.parametrize(
    ("pieces", "refused"),
    [
        ([CREATED, FAILED % TOO_LONG], True),
        ([CREATED, FAILED % b'{"code":"server_error","message":"Sorry."}'], False),
        ([CREATED], False),
    ],
)
def test_a_stream_that_was_relayed_may_turn_out_to_be_a_refusal(pieces: list[bytes], refused: bool) -> None:
    tap = Tap(RESPONSES, "text/event-stream")
    for piece in pieces:
        tap.feed(piece)
    assert (LOOKING.in_relayed(tap) is not None) is refused


def test_each_event_is_read_once_however_many_wait(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    read: list[bytes] = []

    def noted(api: Api, rules: Rules, data: bytes, lines: bool = False) -> ResponsePrefix:
        read.append(data)
        return read_prefix(api, rules, data, lines)

    monkeypatch.setattr(module, "read_prefix", noted)
    pieces = [*[b": wait\n", b"\n", ROLE[:20], ROLE[20:]] * 100, b"data: " + ERROR + b"\r\n", b"\r\n"]
    seen, refusal, _ = look(Reply(200, [EVENTS], *pieces))
    assert seen == b"".join(pieces) and refusal is not None and refusal.limit == 4096
    assert sum(map(len, read)) < 4 * len(seen)
