"""Media are parts that every API can leave out or replace by a text: nothing else of the request changes, calls keep
their results, and the API takes what is left."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.apis import apis
from proxy.fit.plan import plan
from proxy.model.api import Api
from proxy.model.conversation import Message, NotEditable, Part, Prompt
from proxy.model.structs import replace
from proxy.simulator.app import SimulatorConfig, simulator
from tests.makers import facts, ladder
from tests.simulator.test_app import exchange

Json = Any
STANDIN = "[image: dropped]"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
PNG = base64.b64decode(PIXEL)
PDF = "data:application/pdf;base64,"
HEADERS = ((b"x-api-key", b"k"), (b"anthropic-version", b"2023-06-01"))
HOLE = "@text-{}@"  # where a text stands until the body is written


@dataclass
class Writer:
    """Makes texts and media that are like no other in the body, in the order in which they stand in it."""

    number: Iterator[int] = field(default_factory=itertools.count)
    texts: int = 0

    def text(self) -> str:
        self.texts += 1
        return HOLE.format(self.texts - 1)

    def data(self) -> str:
        """An image of one pixel, with bytes behind its end, which mean nothing."""
        return base64.b64encode(PNG + b"%09d" % next(self.number)).decode()

    def body(self, value: Json) -> bytes:
        """The JSON, with texts that nobody writes in this way who decodes them and encodes them again."""
        written = json.dumps(value)
        for place in range(self.texts):
            written = written.replace(HOLE.format(place), odd(place))
        return written.encode()


def odd(place: int) -> str:
    return rf"caf\u00e9 \/ {place}."


Turn = tuple[int, int, int]  # media beside the user's text, calls, media in their results
Parts = list[dict[str, Json]]


def chat(turns: Sequence[Turn], w: Writer) -> Json:
    def media(count: int) -> Parts:
        made: list[Callable[[str], dict[str, Json]]] = [
            lambda data: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
            lambda data: {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": PDF + data},
            },
        ]
        return [made[i % 3](w.data()) for i in range(count)]

    messages: list[Json] = [{"role": "system", "content": w.text()}]
    for turn, (shown, calls, brought) in enumerate(turns):
        said = {"type": "text", "text": w.text()}
        messages.append({"role": "user", "content": [said, *media(shown), {"type": "text", "text": w.text()}]})
        ids = [f"call_{turn}_{i}" for i in range(calls)]
        made = [{"id": i, "type": "function", "function": {"name": "see", "arguments": "{}"}} for i in ids]
        messages.append({"role": "assistant", "content": w.text(), **({"tool_calls": made} if made else {})})
        for ident in ids:
            content = [{"type": "text", "text": w.text()}, *media(min(brought, 1))]
            messages.append({"role": "tool", "tool_call_id": ident, "content": content})
    return {"model": "gpt-4o", "messages": [*messages, {"role": "user", "content": w.text()}]}


def anthropic(turns: Sequence[Turn], w: Writer) -> Json:
    def source(kind: str) -> Json:
        return {"type": "base64", "media_type": kind, "data": w.data()}

    def media(count: int) -> Parts:
        made: list[Callable[[], dict[str, Json]]] = [
            lambda: {"type": "image", "source": source("image/png"), **mark()},
            lambda: {"type": "document", "source": source("application/pdf")},
            lambda: {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [text(), {"type": "image", "source": source("image/png")}],
                },
            },
        ]
        return [made[i % 3]() for i in range(count)]

    def mark() -> dict[str, Json]:
        """A mark of the prompt cache, of which a request has four at most, on the first images."""
        return {"cache_control": {"type": "ephemeral"}} if next(marks) < 4 else {}

    def text() -> dict[str, Json]:
        return {"type": "text", "text": w.text()}

    marks = itertools.count()
    messages: list[Json] = []
    for turn, (shown, calls, brought) in enumerate(turns):
        messages.append({"role": "user", "content": [text(), *media(shown), text()]})
        ids = [f"toolu_{turn}_{i}" for i in range(calls)]
        uses = [{"type": "tool_use", "id": i, "name": "see", "input": {}} for i in ids]
        messages.append({"role": "assistant", "content": [text(), *uses]})
        results = [{"type": "tool_result", "tool_use_id": i, "content": [text(), *media(min(1, brought))]} for i in ids]
        messages.append({"role": "user", "content": [*results, text()]})
        if ids:
            messages.append({"role": "assistant", "content": w.text()})
    messages.append({"role": "user", "content": w.text()})
    tools = [{"name": "see", "input_schema": {"type": "object"}}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": w.text(), "tools": tools, "messages": messages}


def responses(turns: Sequence[Turn], w: Writer) -> Json:
    def media(count: int) -> Parts:
        made: list[Callable[[str], dict[str, Json]]] = [
            lambda data: {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"},
            lambda data: {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": PDF + data,
            },
        ]
        return [made[i % 2](w.data()) for i in range(count)]

    def text() -> dict[str, Json]:
        return {"type": "input_text", "text": w.text()}

    items: list[Json] = []
    for turn, (shown, calls, brought) in enumerate(turns):
        items.append({"type": "message", "role": "user", "content": [text(), *media(shown), text()]})
        for i in range(calls):
            ident = f"call_{turn}_{i}"
            items.append({"type": "function_call", "call_id": ident, "name": "see", "arguments": "{}"})
            items.append({"type": "function_call_output", "call_id": ident, "output": [text(), *media(brought)]})
        items.append({"role": "assistant", "content": w.text()})
    return {"model": "gpt-4o", "instructions": w.text(), "input": [*items, {"role": "user", "content": w.text()}]}


def ollama(turns: Sequence[Turn], w: Writer) -> Json:
    messages: list[Json] = []

    def say(role: str, count: int, **more: Json) -> None:
        images = {"images": [w.data() for _ in range(count)]} if count else {}
        messages.append({"role": role, **images, "content": w.text(), **more})

    for shown, calls, brought in turns:
        say("user", shown)
        made = [{"function": {"name": "see", "arguments": {}}} for _ in range(calls)]
        say("assistant", 0, **({"tool_calls": made} if made else {}))
        for _ in range(calls):
            say("tool", brought)
    say("user", 0)
    return {"model": "llava", "messages": messages, "stream": False}


@dataclass(frozen=True)
class Sort:
    """How the requests of an API are made, the text part that stands in place of media (None: it has no parts), and
    what is added to whatever is changed."""

    body: Callable[[Sequence[Turn], Writer], Json]
    part: str | None = "text"
    added: dict[str, Json] = field(default_factory=dict)


SORTS = {
    "chat": Sort(chat),
    "messages": Sort(anthropic),
    "responses": Sort(responses, "input_text"),
    "ollama": Sort(ollama, None, {"truncate": False}),
}
# What has no media in a conversation: texts alone, and the images of the one question that is asked.
WITHOUT = {
    "completions": {"model": "m", "prompt": ["a", "b"]},
    "embeddings": {"model": "m", "input": ["a", "b"]},
    "generate": {"model": "m", "prompt": "a", "images": [base64.b64encode(PNG).decode()]},
}
TURNS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3)


def api_named(name: str) -> Api:
    return next(api for api in apis() if api.name == name)


def media_of(message: Message) -> list[Part]:
    return [part for part in message.parts() if part.removable]


def data_of(message: Message) -> list[str]:
    """The data of a message's media, in order: it begins as every PNG does and ends at a quotation mark."""
    begin = base64.b64encode(PNG)[:20]
    return [(begin + rest.split(b'"')[0]).decode() for rest in message.raw.split(begin)[1:]]


def without(prompt: Prompt, api: Api, chosen: dict[int, list[Part]], text: str) -> bytes:
    """The body of a plan that leaves out the chosen media, by the index of their messages."""
    made = plan(prompt, ladder(), facts(10**7))
    if not chosen:
        return api.request.render(prompt, made)
    blocks = [
        replace(
            block,
            messages=tuple(
                m.without_media([(part, text) for part in chosen[m.index]], "media") if m.index in chosen else m
                for m in block.messages
            ),
        )
        for block in made.draft.blocks
    ]
    return api.request.render(prompt, replace(made, draft=made.draft.with_blocks(blocks)))


def expected(value: Json, gone: set[str], sort: Sort, text: str) -> Json:
    """The JSON of a body without the media that have these data, as the law demands it."""
    if isinstance(value, dict):
        found = {key: expected(one, gone, sort, text) for key, one in value.items()}
        if sort.part is None and "images" in value:
            images = [one for one in value["images"] if one not in gone]
            said = [text] * (len(value["images"]) - len(images)) if text else []
            found = {k: v for k, v in found.items() if k != "images"} | ({"images": images} if images else {})
            found["content"] = "\n\n".join([value["content"], *said])
        return found
    if not isinstance(value, list):
        return value
    made = []
    for one in value:
        if sort.part is not None and is_media(one) and any(data in json.dumps(one) for data in gone):
            kept = {key: one[key] for key in ("cache_control",) if key in one}
            made += [{"type": sort.part, "text": text, **kept}] if text else []
        else:
            made.append(expected(one, gone, sort, text))
    return made


def is_media(part: Json) -> bool:
    """Whether a content part is media itself: a document of parts is none."""
    if not isinstance(part, dict):
        return False
    source = part.get("source")
    listed = isinstance(source, dict) and source.get("type") == "content"
    return part.get("type") in ("image_url", "input_audio", "file", "image", "input_image", "input_file") or (
        part.get("type") == "document" and not listed
    )


def pairs(prompt: Prompt) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The calls and the answers of each message."""
    return [(tuple(call.id for call in m.calls), m.answers) for m in prompt.messages]


def accepted(api: Api, body: bytes) -> bool:
    config = SimulatorConfig(window=10**7, count=lambda body: 10)
    got = asyncio.run(exchange(simulator(config), path=api.paths[0], body=body, headers=HEADERS))
    assert got.status == 200, got.body
    return True


def test_every_api_is_held_to_the_law() -> None:
    assert SORTS.keys() | WITHOUT.keys() == {api.name for api in apis()}


@pytest.mark.parametrize("name", sorted(SORTS))
@given(turns=TURNS, choice=st.integers(0, 2**30 - 1), text=st.sampled_from((STANDIN, "")))
def test_media_go_alone(name: str, turns: list[Turn], choice: int, text: str) -> None:
    api, sort, writer = api_named(name), SORTS[name], Writer()
    body = writer.body(sort.body(turns, writer))
    assert accepted(api, body)
    prompt = api.request.parse(body)
    chosen: dict[int, list[Part]] = {}
    gone: set[str] = set()
    every: set[str] = set()
    for message in prompt.messages:
        media, data = media_of(message), data_of(message)
        assert len(media) == len(data)
        every |= set(data)
        for part, one in zip(media, data, strict=True):
            choice, taken = choice >> 1, choice & 1
            if taken:
                chosen.setdefault(message.index, []).append(part)
                gone.add(one)
    sent = without(prompt, api, chosen, text)
    added = sort.added if gone else {}
    assert json.loads(sent) == expected(json.loads(body), gone, sort, text) | added
    assert [one.encode() in sent for one in sorted(every)] == [one not in gone for one in sorted(every)]
    if sort.part is not None:  # elsewhere the text is written into the content
        assert all(odd(place).encode() in sent for place in range(writer.texts))
    assert pairs(api.request.parse(sent)) == pairs(prompt)
    assert accepted(api, sent)


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_what_is_no_conversation_has_no_media_that_can_go(name: str) -> None:
    prompt = api_named(name).request.parse(json.dumps(WITHOUT[name]).encode())
    for message in prompt.messages:
        assert media_of(message) == []
        with pytest.raises(NotEditable):
            message.without_media([(part, STANDIN) for part in message.parts()], "media")


@pytest.mark.parametrize("name", sorted(SORTS))
def test_what_cannot_be_edited_raises(name: str) -> None:
    api, writer = api_named(name), Writer()
    body = writer.body(SORTS[name].body([(2, 1, 1)], writer))
    for message in api.request.parse(body).messages:
        for part in message.parts():
            if not part.editable:
                with pytest.raises(NotEditable):
                    message.edit([(part, "x")], "edited")
            if not part.removable:
                with pytest.raises(NotEditable):
                    message.without_media([(part, "x")], "media")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chat", {"content": [{"type": "image_url", "image_url": {"url": "https://h/a.png"}}]}),
        ("messages", {"content": [{"type": "image", "source": {"type": "url", "url": "https://h/a.png"}}]}),
        ("responses", {"content": [{"type": "input_image", "image_url": "https://h/a.png"}]}),
        ("ollama", {"content": "", "images": ["AAAA"]}),
    ],
)
def test_what_has_nothing_else_cannot_be_without_it_but_have_a_text(name: str, message: dict[str, Json]) -> None:
    api = api_named(name)
    field = "input" if name == "responses" else "messages"
    body = json.dumps({"model": "m", "max_tokens": 9, field: [{"role": "user", **message}]}).encode()
    (said,) = api.request.parse(body).messages
    with pytest.raises(NotEditable):
        said.without_media([(part, "") for part in media_of(said)], "media")
    (part,) = said.without_media([(part, STANDIN) for part in media_of(said)], "media").parts()
    assert (part.text, part.editable) == (STANDIN, True)


def test_the_content_of_what_the_provider_has_stored_stays() -> None:
    item = {"id": "msg_1", "role": "user", "content": [{"type": "input_image", "image_url": "https://h/a.png"}]}
    (message,) = api_named("responses").request.parse(json.dumps({"model": "m", "input": [item]}).encode()).messages
    assert media_of(message) == []
