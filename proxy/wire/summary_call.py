"""A question for a summary as the JSON of a chat request, and the summary in the JSON of its answer."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.model.lenient_json import Json, mapping, string

WORDS = 0.6  # words in a token, safely: models keep to words better than to tokens
OPEN, CLOSE = "<summary>", "</summary>"
EARLIER = "The summary so far:\n<summary>\n{}\n</summary>\n\nWhat was said since then:\n\n"
# Last, where it is heeded most; and an answer without the two marks is none: an excuse, an error, or a reply to the
# conversation itself.
END = "\n\n[Here the conversation ends. Do not continue it: write the summary, between <summary> and </summary>.]"


class Unusable(Exception):
    """An answer that is no summary: its text says why and holds nothing of it. `lasting`: not the text's fault."""

    def __init__(self, why: str, lasting: bool = False) -> None:
        super().__init__(why)
        self.lasting = lasting


class _Message(msgspec.Struct):
    content: Any = None


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]


_ANSWER = msgspec.json.Decoder(_Answer)


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or its text parts joined."""
    if not isinstance(content, list):
        return string(content)
    return "".join(string(mapping(part).get("text")) for part in content)


def question(model: str, instructions: str, most: int, before: str, piece: str) -> bytes:
    """The body that asks for a summary of at most `most` tokens: of a piece of a conversation, and of the summary of
    all before it. No limit is sent: what the limit is called differs, and a summary that was cut off helps nobody."""
    told = instructions.replace("{words}", str(int(most * WORDS)))
    said = (EARLIER.format(before) if before else "") + piece + END
    messages = [{"role": "system", "content": told}, {"role": "user", "content": said}]
    return msgspec.json.encode({"model": model, "messages": messages})


def summary_in(payload: bytes) -> str:
    """The summary in an answer's body. Raises `Unusable` where there is none: what stands between the two marks counts,
    the last of them where a model thought aloud before."""
    try:
        choices = _ANSWER.decode(payload).choices
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unusable("it is no answer", lasting=True) from None
    text = text_of(choices[0].message.content) if choices else ""
    before, closed, _ = text.rpartition(CLOSE)
    _, opened, summary = before.rpartition(OPEN)
    if not closed or not opened or not summary.strip():
        raise Unusable("it holds no summary")
    return summary.strip()
