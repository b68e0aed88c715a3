"""Old screenshots and documents leave a text of their size, the oldest first, and only as far as the room asks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from proxy.fit.left_out import READ, WRITTEN, media_of
from proxy.fit.steps.drop_old_images import Params, apply
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from tests.makers import words
from tests.pictures import (
    FIELDS,
    STEPS,
    anthropic_image,
    api_named,
    body,
    chat_image,
    images_in,
    planned,
    png,
    responses_step,
    run,
    said_at,
    sent,
    shot,
    texts_of,
)

Json = Any
NAMES = sorted(STEPS)
every_api = pytest.mark.parametrize("name", NAMES)
WINDOW = 20_000
LOW = Params().low


def dropped(before: Draft, **params: Any) -> Draft:
    return apply(before, Facts(before.window, before.meter), Params(**params))


def shown(draft: Draft) -> list[int]:
    """How many images or documents each message has."""
    return [len(media_of(message)) for message in draft.messages]


@every_api
def test_the_oldest_leave_a_text_of_their_size_and_every_word_stays(name: str) -> None:
    shots = [shot(i) for i in range(40)]
    request = run(name, shots)
    made = planned(name, request, WINDOW)
    assert [note.step for note in made.notes] == ["drop_old_images"] and not made.draft.drops
    left = images_in(sent(name, request, WINDOW))
    assert left == shots[-len(left) :] and 3 < len(left) < 40
    told = "\n".join(map(texts_of, made.draft.messages))
    assert all(said_at(i) in told for i in range(40))
    assert told.count("[A proxy left out an image of 1024 x 768 here.]") == (40 - len(left) + 2) // 3
    assert "1280 x 800" in told and "1440 x 900" in told


@every_api
def test_no_more_go_than_down_to_the_lower_mark(name: str) -> None:
    """The first request that does not fit is cut to the mark, but for one image."""
    for count in range(5, 60):
        made = planned(name, run(name, [shot(i) for i in range(count)]), WINDOW)
        if made.changed:
            break
    draft = made.draft
    stays = draft.fixed + sum(block.tokens for block in draft.blocks if block.pinned)
    mark = stays + LOW * (draft.room - stays)
    assert mark - 1_800 < draft.prompt <= mark


@every_api
def test_a_cut_stays_for_turns(name: str) -> None:
    before: list[Json] = []
    cuts = turns = 0
    for count in range(8, 60):
        request = run(name, [shot(i) for i in range(count)])
        now = sent(name, request, WINDOW)[FIELDS[name]]
        turns += now != request[FIELDS[name]]
        cuts += now[: len(before)] != before
        before = now
    assert turns > 35 and 2 <= cuts <= turns / 3


@every_api
def test_a_request_that_fits_is_left_alone(name: str) -> None:
    made = planned(name, run(name, [shot(i) for i in range(10)]), 200_000)
    assert made.draft is made.before and not made.changed


@every_api
def test_what_is_cut_does_not_depend_on_what_was_seen_before(name: str) -> None:
    request = run(name, [shot(i) for i in range(45)])
    for count in (20, 30, 44):
        sent(name, run(name, [shot(i) for i in range(count)]), WINDOW)
    later = sent(name, request, WINDOW)
    READ.clear()
    WRITTEN.clear()
    assert sent(name, request, WINDOW) == later


@every_api
def test_the_newest_three_stay_however_large_they_are(name: str) -> None:
    request = run(name, [shot(i) for i in range(12)])
    before = planned(name, request, 3_000).before
    after = dropped(before, low=0.1)
    assert [n for n in shown(after) if n] == [1, 1, 1] and shown(after)[-5:] == [1, 0, 1, 0, 1]
    assert [n for n in shown(dropped(before, low=0.1, keep=1)) if n] == [1]
    assert [n for n in shown(dropped(before, low=0.1, keep=0)) if n] == [1]  # the newest block is pinned


def test_images_of_the_last_user_turn_stay_and_those_of_older_turns_go() -> None:
    many = [chat_image(shot(i)) for i in range(6)]
    old = [chat_image(shot(i)) for i in range(10, 16)]
    talk = [
        {"role": "user", "content": "I have pictures of a harbour."},
        {"role": "assistant", "content": "Show them."},
        {"role": "user", "content": [{"type": "text", "text": "These are old."}, *old]},
        {"role": "assistant", "content": "A harbour at noon."},
        {"role": "user", "content": many[:3]},
        {"role": "user", "content": [*many[3:], {"type": "text", "text": "And these?"}]},
        *STEPS["chat"](1, shot(20), "zoomed"),
    ]
    after = dropped(planned("chat", body("chat", talk), 8_000).before, low=0.1, keep=0)
    assert shown(after) == [0, 0, 0, 0, 3, 3, 0, 1]


def test_of_a_message_with_many_images_only_the_oldest_go() -> None:
    pages = [chat_image(png(1024, 768, i)) for i in range(12)]
    talk = [
        {"role": "user", "content": "Read the contract."},
        {"role": "user", "content": [*pages, {"type": "text", "text": "Its pages."}]},
        {"role": "assistant", "content": "Twelve pages."},
        {"role": "user", "content": words(2_000)},
    ]
    made = planned("chat", body("chat", talk), 14_000)
    (message,) = [m for m in made.draft.messages if m.index == 1]
    said = json.loads(message.raw)["content"]
    kept = [part["type"] for part in said]
    count = kept.count("image_url")
    assert 3 <= count < 12 and kept == ["text"] * (12 - count) + ["image_url"] * count + ["text"]


@every_api
def test_what_is_pinned_keeps_its_images(name: str) -> None:
    request = run(name, [shot(i) for i in range(40)])
    first = {"chat": chat_image, "messages": anthropic_image}.get(name, lambda data: responses_step(0, data, "x")[1])
    if name == "responses":
        request["input"][0] = {"role": "user", "content": first(shot(99))["output"]}
    else:
        request["messages"][0] = {"role": "user", "content": [first(shot(99)), {"type": "text", "text": "File them."}]}
    prompt = api_named(name).request.parse(json.dumps(request).encode(), {10})
    made = planned(name, request, WINDOW, prompt)
    pinned = {m.index: m.raw for block in made.before.blocks for m in block.messages if block.pinned}
    assert {i: m.raw for m in made.draft.messages if (i := m.index) in pinned} == pinned
    assert sum(shown(made.draft)) < 40


@every_api
def test_an_image_that_was_sent_twice_is_sent_once(name: str) -> None:
    """Every other screenshot shows the same: leaving out the copies is enough, so that no other image goes."""
    shots = [shot(99) if i % 2 else shot(i) for i in range(24)]
    request = run(name, shots)
    window = planned(name, request, 10**6).before.prompt - 3_000
    made = planned(name, request, window)
    left = images_in(sent(name, request, window))
    assert set(left) == set(shots) and 13 <= len(left) < 24 and left[-3:] == shots[-3:]
    told = "\n".join(map(texts_of, made.draft.messages))
    copies = re.findall(r"image of 1024 x 768 here: it is the same as in the result of call call_(\d+)\.\]", told)
    assert len(copies) == 24 - len(left) and {shots[int(i)] for i in copies} == {shot(99)}
    assert not made.draft.drops


@every_api
def test_no_text_names_a_copy_that_is_gone_itself(name: str) -> None:
    shots = [shot(99) if i % 2 and i < 20 else shot(i) for i in range(60)]
    for count in range(16, 60):
        made = planned(name, run(name, shots[:count]), WINDOW)
        told = "\n".join(map(texts_of, made.draft.messages))
        there = {part.call for m in made.draft.messages for part in m.parts() if part.removable}
        named = {one.partition(".")[0] for one in told.split("same as in the result of call ")[1:]}
        assert named <= there


def long_run(name: str, count: int) -> Json:
    """A run whose texts alone are longer than the window."""
    return run(name, [shot(i) for i in range(count)], words=150)


@every_api
def test_where_words_must_go_too_cuts_still_stay_for_turns(name: str) -> None:
    """Between two deep cuts what changes is near the end: it begins with an image that was among the newest."""
    before: list[Json] = []
    deep = turns = 0
    for count in range(40, 90):
        now = sent(name, long_run(name, count), WINDOW)[FIELDS[name]]
        same = next((i for i, (a, b) in enumerate(zip(now, before, strict=False)) if a != b), len(before))
        deep += same < len(before) // 2
        turns += 1
        assert len(images_in(now)) >= 3
        before = now
    assert deep <= turns / 5


def test_media_of_unknown_cost_cut_nothing_by_themselves() -> None:
    images = [chat_image(f"https://pictures.example/{i}.png") for i in range(30)]
    talk = [m for i, image in enumerate(images) for m in ({"role": "user", "content": [image]}, said(i))]
    request = body("chat", [*talk, {"role": "user", "content": "Which was best?"}])
    assert not planned("chat", request, 12_000).changed


def said(i: int) -> Json:
    return {"role": "assistant", "content": f"Picture {i} shows a harbour."}


def test_after_a_refusal_those_of_unknown_cost_go_and_their_text_names_no_size() -> None:
    images = [chat_image(f"https://pictures.example/{i}.png") for i in range(30)]
    talk = [m for i, image in enumerate(images) for m in ({"role": "user", "content": [image]}, said(i))]
    request = body("chat", [*talk, {"role": "user", "content": "Which was best?"}])
    after = dropped(planned("chat", request, 12_000).before)
    assert 3 <= sum(shown(after)) < 20 and "[A proxy left out an image here.]" in texts_of(list(after.messages)[2])


def test_recordings_are_what_was_said_and_stay() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA" * 4_000, "format": "mp3"}}
    talk = [m for i in range(30) for m in ({"role": "user", "content": [audio]}, said(i))]
    before = planned("chat", body("chat", [*talk, {"role": "user", "content": "Go on."}]), 5_000).before
    assert dropped(before) is before


@pytest.mark.parametrize("params", [{"low": 0.0}, {"low": 1.1}, {"keep": -1}])
def test_parameters_out_of_bounds_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Params(**params)


def test_a_last_turn_that_is_over_the_window_by_itself_stays() -> None:
    pages = [chat_image(shot(i)) for i in range(30)]
    old = [m for i in range(5) for m in STEPS["chat"](i, shot(40 + i), said_at(i))]
    asked = {"role": "user", "content": [*pages, {"type": "text", "text": "Sum them up."}]}
    made = planned("chat", body("chat", [{"role": "user", "content": "Hello"}, *old, asked]), 16_000)
    assert not made.fits and shown(made.draft)[-1] == 30


def test_windows_of_any_size_get_a_plan() -> None:
    request = run("chat", [shot(i) for i in range(30)])
    for window in range(4_000, 40_000, 3_000):
        made = planned("chat", request, window)
        assert made.fits and made.draft.prompt <= Window(window).tokens


def test_images_of_instructions_stay_and_those_of_the_assistant_go() -> None:
    steps = [m for i in range(20) for m in STEPS["chat"](i, shot(i), said_at(i))]
    told = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}, chat_image(shot(50))]},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [{"type": "text", "text": "Like this?"}, chat_image(shot(51))]},
        *steps,
    ]
    after = dropped(planned("chat", body("chat", told), 8_000).before)
    assert shown(after)[:3] == [1, 0, 0] and shown(after)[-1] == 1


def test_five_thousand_images_are_planned_and_the_replay_ends() -> None:
    """A last turn that fills the window, and rounds behind it: other steps are due at every one of them."""
    turn = {"role": "user", "content": [chat_image(png(64, 64, i)) for i in range(3_000)]}
    steps = [m for i in range(2_000) for m in STEPS["chat"](i, png(64, 64, 9_000 + i), "seen")]
    request = body("chat", [{"role": "user", "content": "Hi"}, turn, *steps])
    after = dropped(planned("chat", request, 10**7).before, low=0.5)
    assert sum(shown(after)) == 5_000
    before = replace(planned("chat", request, 10**7).before, window=Window(100_000))
    assert shown(dropped(before))[1] == 3_000 and sum(shown(dropped(before))) == 3_003
