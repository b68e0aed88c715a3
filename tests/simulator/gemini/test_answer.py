"""The simulator's Gemini API: answers, counts, embeddings, and what it refuses, in Google's words."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.apis.gemini import count
from proxy.simulator.app import Simulator
from proxy.simulator.gemini import API
from proxy.simulator.gemini.answer import SIGNATURE, count_prompt
from proxy.simulator.settings import SimulatorConfig
from proxy.wire.refusals import compile_rules, recognise
from tests.simulator.test_app import ResponseReader, exchange

RULES = compile_rules(tomllib.loads((Path(__file__).parents[3] / "rules/refusals.toml").read_text("utf-8")))
PRO, THREE = "gemini-2.5-pro", "gemini-3-pro"
CALL: dict[str, Any] = {"functionCall": {"name": "f", "args": {"q": "x"}}}
RESPONSE = {"functionResponse": {"name": "f", "response": {"result": "y"}}}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return {**user(*parts), "role": "model"}


def asked(
    *contents: Any, name: str = PRO, verb: str = "generateContent", raw: bytes = b"", key: str = "", **fields: Any
) -> ResponseReader:
    config = SimulatorConfig(window=fields.pop("window", 100), text=fields.pop("text", ""), api_key=key)
    sent = raw or json.dumps({"contents": list(contents), **fields} if contents else fields).encode()
    headers = [(b"x-goog-api-key", b"k")]
    return asyncio.run(exchange(Simulator(config), "POST", f"/v1beta/models/{name}:{verb}", sent, headers))


def told(got: ResponseReader) -> str:
    """The message of an error, which is an invalid argument."""
    assert got.status == 400 and got.json["error"]["code"] == 400
    assert got.json["error"]["status"] == "INVALID_ARGUMENT"
    return str(got.json["error"]["message"])


def test_an_answer_and_its_stream_say_the_same() -> None:
    got = asked(user("How deep?"), text="Six metres.").json
    assert got["candidates"][0]["content"]["parts"] == [{"text": "Six metres."}]
    assert got["candidates"][0]["finishReason"] == "STOP"
    assert got["usageMetadata"] == {"promptTokenCount": 2, "candidatesTokenCount": 2, "totalTokenCount": 4}
    events = asked(user("How deep?"), text="Six metres.", verb="streamGenerateContent").body.split(b"\r\n\r\n")
    found = [json.loads(event.removeprefix(b"data: ")) for event in events if event]
    assert "".join(one["candidates"][0]["content"]["parts"][0]["text"] for one in found) == "Six metres."
    assert found[-1]["usageMetadata"] == got["usageMetadata"] and b"[DONE]" not in b"".join(events)
    short = asked(user("How deep?"), text="Six metres.", generationConfig={"maxOutputTokens": 1}).json
    assert short["candidates"][0]["finishReason"] == "MAX_TOKENS"


def test_it_counts_a_request_and_contents_alone_and_what_the_proxy_asks() -> None:
    alone = asked(user("How deep?"), verb="countTokens").json["totalTokens"]
    whole = {"contents": [user("How deep?")], "systemInstruction": {"parts": [{"text": "Be brief."}]}}
    assert asked(verb="countTokens", generateContentRequest=whole).json["totalTokens"] > alone
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How deep?"}]
    sent = count.body(PRO, {"messages": msgspec.json.encode(said)})
    assert asked(verb="countTokens", raw=sent).json["totalTokens"] == count_prompt(whole)


def test_a_prompt_over_the_limit_is_refused_in_words_that_the_proxy_knows() -> None:
    long = user("word " * 101)
    got = asked(long)
    assert told(got) == "The input token count (101) exceeds the maximum number of tokens allowed (100)."
    found = recognise(RULES, 400, got.body)
    assert found is not None and (found.limit, found.prompt) == (100, 101)
    assert asked(user("word " * 100), generationConfig={"maxOutputTokens": 10**6}).status == 200
    assert asked(long, verb="countTokens").status == 200


LIKE = "Please ensure that "
PAIRED = (
    "the number of function response parts is equal to the number of function call parts of the function call turn."
)
AFTER = "function call turn comes immediately after a user turn or after a function response turn."


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([model("x")], LIKE + "the first content has the role user."),
        ([user(RESPONSE)], LIKE + "the first content has the role user."),
        ([user("q"), model("x"), model(CALL), user(RESPONSE)], LIKE + AFTER),
        ([user("q"), model(CALL), user("x")], LIKE + PAIRED),
        ([user("q"), model(CALL, CALL), user(RESPONSE)], LIKE + PAIRED),
        ([user("q"), model(CALL)], LIKE + PAIRED),
        ([user("q"), model("x"), user(RESPONSE)], LIKE + PAIRED),
        ([user("q"), {"role": "system", "parts": [{"text": "x"}]}], "Please use a valid role: user, model."),
        ([{"role": "user", "parts": []}], "contents[0].parts: contents.parts must not be empty."),
    ],
)
def test_turns_that_are_refused(contents: list[Any], text: str) -> None:
    assert told(asked(*contents)).endswith(text)


def test_turns_that_are_valid() -> None:
    assert asked(user("q"), model(CALL, CALL), user(RESPONSE, RESPONSE), model(CALL), user(RESPONSE)).status == 200
    assert asked(user("q"), model("x"), user("q"), model("x", CALL), user(RESPONSE)).status == 200
    assert "contents is not specified" in told(asked(contents=[]))


def test_calls_of_the_current_turn_carry_a_signature() -> None:
    signed = {**CALL, "thoughtSignature": SIGNATURE}
    missing = "Function call is missing a thought_signature in functionCall parts."
    assert told(asked(user("q"), model(CALL), user(RESPONSE), name=THREE)) == missing
    assert asked(user("q"), model(signed, CALL), user(RESPONSE, RESPONSE), name=THREE).status == 200
    assert asked(user("q"), model(CALL), user(RESPONSE), model("x"), user("q"), name=THREE).status == 200
    assert asked(user("q"), model(CALL), user(RESPONSE)).status == 200
    stale = {**CALL, "thoughtSignature": "of another"}
    assert told(asked(user("q"), model(stale), user(RESPONSE), name=THREE)) == "Invalid thought signature."


def test_embeddings_are_cut_unless_the_request_forbids_it() -> None:
    def parts(text: str) -> dict[str, Any]:
        return {"content": {"parts": [{"text": text}]}}

    one, long = parts("word"), parts("word " * 101)
    assert asked(verb="embedContent", **long).json.keys() == {"embedding"}
    assert told(asked(verb="embedContent", **long, autoTruncate=False)).startswith("The input token count (101)")
    assert asked(verb="embedContent", **one, autoTruncate=False).status == 200
    assert len(asked(verb="batchEmbedContents", requests=[one] * 100).json["embeddings"]) == 100
    got = asked(verb="batchEmbedContents", requests=[one] * 101)
    assert told(got).endswith("at most 100 requests can be in one batch")
    found = recognise(RULES, 400, got.body)
    assert found is not None and (found.bounds, found.limit) == ("inputs", 100)


def test_keys_paths_and_bodies() -> None:
    assert API.serves(f"/v1beta/models/{PRO}:generateContent") and not API.serves("/v1beta/models")
    assert asked(user("q"), key="k").status == 200
    assert asked(user("q"), key="other").json["error"]["status"] == "UNAUTHENTICATED"
    assert asked(user("q"), verb="sing").json["error"]["status"] == "NOT_FOUND"
    assert told(asked(raw=b"{")) == "Invalid JSON payload received."
