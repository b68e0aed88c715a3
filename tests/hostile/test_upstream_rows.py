"""Attacks through rows of upstreams.toml: on whose key is spent, where it goes and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.harness import HELLO, Running, friendly, running, upstream
from tests.recorder import Peer, Recorder, Request, Script, answer
from tests.upstreams.providers import claude, refusing

OPERATOR = "canary-operator-3141"
KEYS: dict[str, Any] = {"LARGE_KEY": OPERATOR}


@contextmanager
def beside(
    folder: Path,
    *fields: str,
    script: Script = friendly,
    default: Script = friendly,
    litellm: str = "",
    workers: int = 1,
    **environment: str,
) -> Iterator[tuple[Recorder, Recorder, Running]]:
    """The default upstream, that of a row with a key of the operator's, and a proxy before both."""
    with upstream(default) as here, upstream(script) as there:
        url = there.url.removesuffix("/v1") if litellm == "anthropic" else there.url
        named = ('api = "litellm"', f'provider = "{litellm}"') if litellm else ()
        always = ('name = "other"', f'url = "{url}"', 'key = "LARGE_KEY"', *named)
        (folder / "upstreams.toml").write_text("\n".join(("[[upstream]]", *always, *fields)))
        settings: dict[str, Any] = {"PLIMSOLL_RULES": str(folder), **KEYS, **environment}
        with running(here.url, workers=workers, **settings) as proxy:
            yield here, there, proxy


def hello(model: str) -> dict[str, Any]:
    return {**HELLO, "model": model}


NAMED = {"x-plimsoll-upstream": "other"}
ANYONE = 'callers = "any"'


# S10: what a client calls a model.


@pytest.mark.parametrize("provider", ["oobabooga", "huggingface"])
def test_S10_a_name_of_a_model_that_is_an_address_is_refused_and_asked_for_nowhere(
    tmp_path: Path, provider: str
) -> None:
    with upstream() as victim, beside(tmp_path, ANYONE, litellm=provider) as (_, there, proxy):
        host = victim.url.removeprefix("http://")
        for model in (victim.url, f"http:/{host}", f"https://{host}", f"{provider}/{victim.url}", "../../admin", "a?b"):
            got = proxy.ask(hello(model), headers=NAMED)
            assert (got.status, got.json["error"]["type"]) == (400, "invalid_request_error"), model
            assert "no name of a model" in got.json["error"]["message"]
        assert not victim.requests and not there.requests


def test_S10_a_row_that_says_which_models_it_serves_serves_no_other(tmp_path: Path, workers: int) -> None:
    fields = (ANYONE, 'models = ["large-*"]', 'serves = ["large-1", "mini-*"]')
    with beside(tmp_path, *fields, workers=workers) as (_, there, proxy):
        for model, headers in (("large-2", {}), ("gpt-5.2-pro", NAMED), ("large-2", NAMED), ("", NAMED)):
            for mode in ("fit", "off"):
                got = proxy.ask(hello(model), headers={**headers, "x-plimsoll-mode": mode})
                assert (got.status, got.json["error"]["code"]) == (404, "model_not_found"), (model, headers)
        twice = b'{"model":"large-1","model":"large-2","messages":[{"role":"user","content":"hi"}]}'
        for unclear in (twice, b'{"model":"large-1"', b'{"messages":[],"model":7}'):
            assert proxy.ask(unclear, headers=NAMED).status == 404, unclear
        for path in ("/v1/audio/speech", "/v1/images/generations"):
            assert proxy.ask(hello("large-1"), path, headers=NAMED).status == 404
        assert not [request for request in there.requests if request.method == b"POST"]
        assert proxy.ask(hello("large-1")).status == proxy.ask(hello("Mini-7"), headers=NAMED).status == 200
        assert len([request for request in there.requests if request.method == b"POST"]) == 2
        assert proxy.ask(path="/v1/models", headers=NAMED).status == 200


def test_S10_nothing_is_moved_to_a_model_that_a_row_does_not_serve(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text(
        '[[window]]\nmodel = "gpt-4"\ntokens = 4096\n[[window]]\nmodel = "large-*"\ntokens = 100000\n'
    )
    fields = (ANYONE, 'models = ["large-*"]', 'serves = ["large-1"]')
    allowed: dict[str, Any] = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "large-2,large-1"}
    with beside(tmp_path, *fields, **allowed) as (_, there, proxy):
        text = "A load line shows how far a ship may be loaded. " * 400
        got = proxy.ask({"model": "gpt-4", "messages": [{"role": "user", "content": text}]})
        assert (got.status, got.headers["x-plimsoll-model"]) == (200, "large-1")
        assert json.loads(there.requests[-1].body)["model"] == "large-1"


# S11: headers that a server behind us may read under another name.


@pytest.mark.parametrize("name", ["Transfer_Encoding", "Content_Length", "Proxy_Connection", "x_plimsoll_mode"])
def test_S11_a_header_that_folds_to_framing_or_to_one_of_ours_goes_nowhere(workers: int, name: str) -> None:
    with upstream() as up, running(up.url, workers=workers) as proxy:
        for path in ("/v1/chat/completions", "/v1/audio/speech"):
            assert proxy.ask(HELLO, path, headers={name: "chunked", "session_id": "7"}).status == 200
        for request in up.requests:
            assert name.lower().encode() not in request.head.lower() and request.header(b"session_id") == [b"7"]


# S12: what is told of the operator's account.


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
def test_S12_a_key_that_is_not_permitted_is_told_in_words_of_ours(tmp_path: Path, status: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        words = f"org-canary-161 may not use this model with the key ...{OPERATOR[-6:]}"
        await peer.send(answer(json.dumps({"error": {"message": words}}).encode(), status))

    with beside(tmp_path, ANYONE, 'models = ["large-*"]', script=script) as (_, _, proxy):
        for path in ("/v1/chat/completions", "/v1/files"):
            got = proxy.ask(hello("large-1"), path, headers=NAMED)
            assert (got.status, got.json["error"]["code"]) == (502, "upstream_key_refused")
            assert got.headers["x-should-retry"] == "false"
            assert b"canary" not in got.body and OPERATOR[-6:].encode() not in got.body


@pytest.mark.parametrize("stream", [False, True])
def test_S12_so_is_one_behind_litellm(tmp_path: Path, stream: bool) -> None:
    script = refusing(b"403 Forbidden", "permission_error", f"org-canary-161: ...{OPERATOR[-6:]}")
    fields = (ANYONE, 'models = ["claude-*"]')
    with beside(tmp_path, *fields, script=script, litellm="anthropic") as (_, _, proxy):
        got = proxy.ask({**hello("claude-sonnet-4-5"), "stream": stream})
        assert (got.status, got.json["error"]["code"]) == (502, "upstream_key_refused")
        assert b"canary" not in got.body and OPERATOR[-6:].encode() not in got.body


def test_S12_a_redirect_of_a_row_does_not_say_where_the_operators_account_lives(tmp_path: Path) -> None:
    async def script(request: Request, peer: Peer) -> None:
        where = (b"location: https://org-canary.example/v1", b"content-location: /canary")
        await peer.send(answer(b"{}", b"307 Temporary Redirect", (b"content-type: application/json", *where)))

    with beside(tmp_path, ANYONE, 'models = ["large-*"]', script=script) as (_, _, proxy):
        got = proxy.ask(hello("large-1"))
        assert got.status == 307 and "canary" not in str(got.headers)


# S17: whose key goes.


@pytest.mark.parametrize(
    "name", ["x-goog-api-key", "ocp-apim-subscription-key", "x-litellm-api-key", "x_api_key", "Api_Key"]
)
def test_S17_the_operators_key_never_goes_beside_a_clients_own(workers: int, name: str) -> None:
    with upstream() as up, running(up.url, workers=workers, PLIMSOLL_API_KEY="canary-lent") as proxy:
        for path in ("/v1/chat/completions", "/v1/models"):
            assert proxy.ask(HELLO, path, "POST", headers={name: "mine"}, key=None).status == 200
        assert all(request.header(b"authorization") == [] for request in up.requests)
        assert {value for r in up.requests for value in r.header(name.lower().encode())} == {b"mine"}
        assert proxy.ask(HELLO, key=None).status == 200
        assert up.requests[-1].header(b"authorization") == [b"Bearer canary-lent"]


# B4: one request goes upstream three times at most.


def test_B4_a_refusal_that_cannot_be_read_is_asked_again_once_and_that_counts(workers: int) -> None:
    def script(plain: bytes) -> Script:
        async def refuses(request: Request, peer: Peer) -> None:
            readable = b"identity" in request.head
            coding = (b"content-type: application/json", *(() if readable else (b"content-encoding: br",)))
            await peer.send(answer(plain if readable else b"\x0b\x02\x80hello\x03", b"400 Bad Request", coding))

        return refuses

    long = {"model": "gpt-4o", "messages": [{"role": "user", "content": "A load line. " * 9_000} for _ in range(3)]}
    for words in ("maximum context length is 4000 tokens", "This is no refusal for length"):
        told = json.dumps({"error": {"message": words, "code": None}}).encode()
        with upstream(script(told)) as up, running(up.url, workers=workers) as proxy:
            assert proxy.ask(long, headers={"accept-encoding": "br"}).status == 400
            posts = [request for request in up.requests if request.method == b"POST"]
            assert len(posts) <= 3 and proxy.log('"attempts":')
            assert [b"identity" in request.head for request in posts] == [False, *[True] * (len(posts) - 1)]
            assert json.loads(proxy.log('"attempts":')[-1])["attempts"] == len(posts)


# B5: litellm is loaded before it is needed, and the log keeps its form.


def test_B5_a_row_that_is_added_later_loads_litellm_before_a_request_meets_it(tmp_path: Path) -> None:
    rows = tmp_path / "upstreams.toml"
    rows.write_text("")
    with upstream(claude()) as there, running(there.url, PLIMSOLL_RULES=str(tmp_path), **KEYS) as proxy:
        fields: Mapping[str, str] = {
            **{"name": "other", "url": there.url.removesuffix("/v1"), "key": "LARGE_KEY", "callers": "any"},
            **{"api": "litellm", "provider": "anthropic"},
        }
        lines = [f'{name} = "{value}"' for name, value in fields.items()]
        rows.write_text("\n".join(("[[upstream]]", 'models = ["claude-*"]', *lines)))
        assert proxy.log("rules and keys are reloaded", seconds=60)
        events = [json.loads(line)["event"] for line in proxy.lines if '"event"' in line]
        assert events.index("litellm is loaded") < events.index("rules and keys are reloaded")
        assert proxy.ask(hello("claude-sonnet-4-5")).status == 200
