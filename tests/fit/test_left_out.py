"""Images and documents, the texts in their place, and what those say of copies."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from proxy.fit.left_out import Medium, media_of, noted, without, written
from proxy.fit.plan import start
from proxy.model.bounded import Bounded
from proxy.model.conversation import Message
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests.makers import ladder
from tests.pictures import (
    STEPS,
    anthropic_image,
    body,
    chat_image,
    parsed,
    png,
    shot,
    texts_of,
)

Json = Any
PDF = base64.b64encode(b"%PDF-1.4" + b"0" * 2_992).decode()


def message_of(name: str, content: Json, role: str = "user") -> Message:
    return parsed(name, body(name, [{"role": role, "content": content}])).messages[0]


def medium(name: str, part: Json) -> Medium:
    (found,) = media_of(message_of(name, [part]))
    return found


@pytest.mark.parametrize(
    ("name", "part", "what"),
    [
        ("chat", chat_image(png(640, 480)), "an image of 640 x 480"),
        ("chat", chat_image("https://h/a.png"), "an image"),
        ("chat", {"type": "image_url", "image_url": "https://h/a.png"}, "an image"),
        ("chat", {"type": "image_url", "image_url": None}, "an image"),
        ("chat", chat_image("data:image/png,no base64 at all"), "an image"),
        ("chat", chat_image("data:image/png;base64,####"), "an image"),
        (
            "chat",
            {"type": "file", "file": {"filename": "a \n[b].pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
            'the document "a b .pdf" of 3,000 bytes',
        ),
        ("chat", {"type": "file", "file": {"file_id": "file-1"}}, "a document"),
        ("messages", anthropic_image(png(640, 480)), "an image of 640 x 480"),
        ("messages", anthropic_image("https://h/a.png"), "an image"),
        (
            "messages",
            {"type": "document", "title": "T" * 99, "source": {"type": "base64", "media_type": "x/y", "data": PDF}},
            f'the document "{"T" * 59}…" of 3,000 bytes',
        ),
        ("messages", {"type": "document", "source": {"type": "file", "file_id": "f"}}, "a document"),
        ("responses", {"type": "input_image", "file_id": "file-1"}, "an image"),
        ("responses", {"type": "input_file", "file_url": "https://h/a.pdf"}, "a document"),
    ],
)
def test_texts_say_what_it_was(name: str, part: Json, what: str) -> None:
    assert medium(name, part).what == what
    assert medium(name, part).left_out == f"[A proxy left out {what} here.]"


def test_images_of_ollama_are_their_data() -> None:
    request = {"model": "llava", "messages": [{"role": "user", "content": "see", "images": [png(64, 48), "####"]}]}
    found = media_of(parsed("ollama", request).messages[0])
    assert [one.what for one in found] == ["an image of 64 x 48", "an image"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("chat", {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}),
        ("chat", {"type": "text", "text": "image_url"}),
        ("messages", {"type": "container_upload", "file_id": "f"}),
        ("messages", {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}),
        ("responses", {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}),
    ],
)
def test_what_is_no_image_and_no_document_is_none(name: str, part: Json) -> None:
    assert media_of(message_of(name, [part])) == ()


def test_the_same_content_has_the_same_key_whatever_stands_beside_it() -> None:
    one, other = chat_image(png(64, 48)), chat_image(png(64, 48), x=1)
    assert medium("chat", one).key == medium("chat", other).key != medium("chat", chat_image(png(64, 48, 1))).key
    assert medium("chat", one).key == medium("messages", anthropic_image(png(64, 48))).key
    assert medium("chat", {"type": "image_url", "image_url": {}}).key == 0


def test_a_place_is_named_by_its_call_or_by_how_its_message_begins() -> None:
    (result,) = media_of(parsed("chat", body("chat", STEPS["chat"](7, shot(1), "done"))).messages[1])
    (said,) = media_of(message_of("chat", [{"type": "text", "text": 'See "this"\n' + "x" * 99}, chat_image(shot(1))]))
    assert result.where == "the result of call call_7" and said.where == f'the later message "See this {"x" * 30}…"'
    assert medium("chat", chat_image(shot(1))).where == "a later message"
    assert said.same_as(result) == (
        "[A proxy left out an image of 1280 x 800 here: it is the same as in the result of call call_7.]"
    )


def test_a_mark_of_the_prompt_cache_stays_where_it_was() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    message = message_of("messages", [anthropic_image(shot(0), **mark), {"type": "text", "text": "see"}])
    (found,) = media_of(message)
    raw = written(message, [found.left_out]).raw
    assert raw.count(b'"cache_control"') == 1 and b'"image"' not in raw


def test_what_is_not_left_out_stays_and_the_same_message_is_written_alike() -> None:
    message = message_of("chat", [chat_image(shot(i)) for i in range(3)])
    made = written(message, ["one", "", "two"])
    assert [part.text for part in made.parts()] == ["one", "", "two"] and len(media_of(made)) == 1
    assert written(message, ["one", "", "two"]).raw == made.raw != written(message, ["one", "two", ""]).raw


def drafted(count: int) -> Draft:
    """A run in which every step shows the same."""
    steps = [m for i in range(count) for m in STEPS["chat"](i, shot(0), "done")]
    prompt = parsed("chat", body("chat", [{"role": "user", "content": "Go."}, *steps]))
    meter = meter_for(prompt, prompt.model, Bounded(1_000))
    return start(prompt, ladder(), Facts(Window(100_000), meter))


def with_copies(draft: Draft) -> Draft:
    """The draft in which the first image is that of the third step, and the second is gone."""
    media = [media_of(block.messages[-1])[0] for block in draft.blocks[1:]]
    texts = {(1, 1): [media[0].same_as(media[2])], (2, 1): [media[1].left_out]}
    return without(draft, texts)


def test_a_text_names_a_copy_as_long_as_it_is_sent() -> None:
    first = drafted(4)
    draft = with_copies(first)
    assert noted(first, first) is first and noted(first, draft) is draft
    others = draft.with_blocks([*draft.blocks[:3], *draft.blocks[4:]])
    checked = noted(first, others)
    assert "[A proxy left out an image of 1024 x 768 here.]" in texts_of(list(checked.messages)[2])
    assert checked.prompt < others.prompt and checked.prompt == sum(m.tokens for m in checked.messages) + checked.fixed


def test_what_a_client_wrote_is_no_text_of_ours() -> None:
    first = drafted(4)
    quoted = b"[A proxy left out an image here: it is the same as in the result of call nowhere.]"
    message = first.blocks[0].messages[0]
    theirs = replace(first.blocks[0], messages=(replace(message, raw=message.raw.replace(b"Go.", quoted)),))
    draft = with_copies(first.with_blocks([theirs, *first.blocks[1:]]))
    assert quoted in next(iter(noted(first, draft).messages)).raw


def test_nothing_is_left_out_where_that_saves_nothing() -> None:
    draft = drafted(2)
    assert without(draft, {}) is draft
    assert without(draft, {(1, 1): ["word " * 2_000]}) is draft
