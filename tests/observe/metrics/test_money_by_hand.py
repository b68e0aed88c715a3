"""Answers as upstreams write them, and what they cost: computed by hand from list prices, not by code of ours.

Each case is the body of an answer, the model that the client named, the host that it went to, and dollars.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from proxy.apis import apis
from proxy.config.model_table import read_table
from proxy.config.upstream_prices import upstream_prices
from proxy.config.window_rules import WindowRules
from proxy.config.windows import Windows
from proxy.fit.money import Sum, Unpriced, price
from proxy.model.api import ResponseState
from proxy.model.outcome import Usage
from proxy.wire.tap import Tap

# Dollars for a million tokens, by the providers' pages: input, output, read from the cache, written to it, for an hour.
INPUT, OUTPUT, READ = "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost"
WRITE, HOUR = "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr"


def row(by: str, *dollars: float, **more: Any) -> dict[str, Any]:
    figures = dict(zip((INPUT, OUTPUT, READ, WRITE, HOUR), [one / 1e6 for one in dollars], strict=False))
    found = {name: one / 1e6 if isinstance(one, (int, float)) else one for name, one in more.items()}
    return {"mode": "chat", "litellm_provider": by, **figures, **found}


SEARCH = {"search_context_size_medium": 0.01}
TABLE = {
    "gpt-4o": row(
        "openai", 2.5, 10, 1.25, **{f"{INPUT}_priority": 4.25, f"{OUTPUT}_priority": 17, f"{READ}_priority": 2.125}
    ),
    "gpt-5.6": row(
        "openai",
        *(4, 20, 0.4, 5),
        **{f"{INPUT}_flex": 2, f"{OUTPUT}_flex": 10, f"{READ}_flex": 0.2, f"{WRITE}_flex": 2.5},
        **{f"{INPUT}_above_272k_tokens": 8, f"{OUTPUT}_above_272k_tokens": 30, f"{READ}_above_272k_tokens": 0.8},
        **{f"{WRITE}_above_272k_tokens": 10, "search_context_cost_per_query": SEARCH},
    ),
    "gpt-audio": row("openai", 2.5, 10, input_cost_per_audio_token=40, output_cost_per_audio_token=80),
    "text-embedding-3-small": {"mode": "embedding", "litellm_provider": "openai", INPUT: 0.02e-6},
    "claude-sonnet-4-5": row(
        "anthropic",
        *(3, 15, 0.3, 3.75, 6),
        **{f"{INPUT}_batches": 1.5, f"{OUTPUT}_batches": 7.5, "search_context_cost_per_query": SEARCH},
        **{f"{INPUT}_above_200k_tokens": 6, f"{OUTPUT}_above_200k_tokens": 22.5},
    ),
    "gemini/gemini-2.5-flash": row("gemini", 0.3, 2.5, 0.03, input_cost_per_audio_token=1),
    "azure/gpt-4o-2024-08-06": row("azure", 2.75, 11, 1.375),
    "groq/llama-3.1-8b-instant": row("groq", 0.05, 0.08),
    "deepinfra/meta-llama/llama-3.3-70b": row("deepinfra", 0.23, 0.4),
    "inferenceapis/llama-3.3-70b-versatile": row("inferenceapis", 0.2, 0.5),
    "xai/grok-4": row("xai", 3, 15),
}
OPENAI, CLAUDE, GEMINI = "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"
AZURE, GROQ, INFRA = "my.openai.azure.com", "api.groq.com", "api.deepinfra.com"
ROUTER, XAI = "openrouter.ai", "api.x.ai"


class Case(NamedTuple):
    host: str
    model: str
    api: str
    answer: bytes
    dollars: float | Unpriced
    asked: str = ""


def chat(counts: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], **more, "usage": counts}).encode()


def message(counts: dict[str, Any]) -> bytes:
    body = {"id": "1", "type": "message", "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "hi"}]}
    return json.dumps({**body, "stop_reason": "end_turn", "usage": counts}).encode()


def response(counts: dict[str, Any], *items: str, **more: Any) -> bytes:
    body = {"id": "1", "object": "response", "status": "completed", "output": [{"type": item} for item in items]}
    return json.dumps({**body, **more, "usage": counts}).encode()


def counted(prompt: int, reply: int, **details: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply} | (
        {"prompt_tokens_details": details} if details else {}
    )


def responded(prompt: int, reply: int, **details: int) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": reply, "input_tokens_details": details}


def thought(prompt: int, reply: int, reasoning: int) -> dict[str, Any]:
    """As xAI counts: the completion is without its thinking, which is in the total."""
    return {
        **{"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply + reasoning},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


GIVEN_USUAL = chat(counted(10_000, 100), service_tier="default")
OWN_KEY = {"cost": 0.0005, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.01}}
CASES = {
    # 10,000 x 2.50 + 100 x 10
    "plain": Case(OPENAI, "gpt-4o", "chat", chat(counted(10_000, 100)), 0.026),
    # 1,936 x 2.50 + 8,064 x 1.25 + 100 x 10
    "cached": Case(OPENAI, "gpt-4o", "chat", chat(counted(10_000, 100, cached_tokens=8_064)), 0.01592),
    # 10,000 x 4.25 + 100 x 17: what the answer reports outranks what was asked
    "priority": Case(OPENAI, "gpt-4o", "chat", chat(counted(10_000, 100), service_tier="priority"), 0.0442, "flex"),
    # asked for, and the answer does not say
    "priority asked": Case(OPENAI, "gpt-4o", "chat", chat(counted(10_000, 100)), 0.0442, "priority"),
    # asked for, and not given
    "priority not given": Case(
        OPENAI, "gpt-4o", "chat", chat(counted(10_000, 100), service_tier="default"), 0.026, "priority"
    ),
    # 5,928 x 4 + 2,048 x 0.40 + 1,024 x 5 + 100 x 20
    "writes of gpt-5.6": Case(
        OPENAI,
        "gpt-5.6",
        "responses",
        response(
            {
                "input_tokens": 9_000,
                "output_tokens": 100,
                "input_tokens_details": {"cached_tokens": 2_048, "cache_write_tokens": 1_024},
            }
        ),
        0.0316512,
    ),
    # 6,952 x 4 + 2,048 x 0.40 + 100 x 20: nothing is written
    "no writes of gpt-5.6": Case(
        OPENAI, "gpt-5.6", "chat", chat(counted(9_000, 100, cached_tokens=2_048, cache_write_tokens=0)), 0.0306272
    ),
    # 5,928 x 2 + 2,048 x 0.20 + 1,024 x 2.50 + 100 x 10
    "flex": Case(
        OPENAI,
        "gpt-5.6",
        "chat",
        chat(counted(9_000, 100, cached_tokens=2_048, cache_write_tokens=1_024), service_tier="flex"),
        0.0158256,
    ),
    # 200,000 x 8 + 100,000 x 0.80 + 1,000 x 30
    "over 272k": Case(
        OPENAI,
        "gpt-5.6",
        "responses",
        response(responded(300_000, 1_000, cached_tokens=100_000, cache_write_tokens=0)),
        1.71,
    ),
    # 1,000 x 4 + 100 x 20 + two searches of .01; the text is no search
    "searches": Case(
        OPENAI,
        "gpt-5.6",
        "responses",
        response(
            responded(1_000, 100, cache_write_tokens=0),
            *("web_search_call", "message", "web_search_call"),
            text='"type":"web_search_call"',
        ),
        0.026,
    ),
    # 700 x 2.50 + 300 x 40 + 150 x 10 + 50 x 80
    "audio": Case(
        OPENAI,
        "gpt-audio",
        "chat",
        chat(counted(1_000, 200, audio_tokens=300) | {"completion_tokens_details": {"audio_tokens": 50}}),
        0.01925,
    ),
    # 1,000,000 x 0.02
    "embeddings": Case(
        OPENAI,
        "text-embedding-3-small",
        "embeddings",
        b'{"object":"list","data":[{"embedding":[0.1],"index":0}],"model":"text-embedding-3-small",'
        b'"usage":{"prompt_tokens":1000000,"total_tokens":1000000}}',
        0.02,
    ),
    # 1,000 x 3 + 6,000 x 0.30 + 2,000 x 3.75 + 1,000 x 6 + 100 x 15
    "an hour's writes": Case(
        CLAUDE,
        "claude-sonnet-4-5",
        "messages",
        message(
            {
                **{"input_tokens": 1_000, "cache_read_input_tokens": 6_000, "cache_creation_input_tokens": 3_000},
                "cache_creation": {"ephemeral_5m_input_tokens": 2_000, "ephemeral_1h_input_tokens": 1_000},
                **{"output_tokens": 100, "service_tier": "standard"},
            }
        ),
        0.0198,
    ),
    # 1,000 x 3 + 100 x 15 + three searches of .01
    "Claude's searches": Case(
        CLAUDE,
        "claude-sonnet-4-5",
        "messages",
        message({"input_tokens": 1_000, "output_tokens": 100, "server_tool_use": {"web_search_requests": 3}}),
        0.0345,
    ),
    # 1,000 x 1.50 + 100 x 7.50
    "batch": Case(
        CLAUDE,
        "claude-sonnet-4-5",
        "messages",
        message({"input_tokens": 1_000, "output_tokens": 100, "service_tier": "batch"}),
        0.00225,
    ),
    # 200,001 x 6 + 10 x 22.50
    "over 200k": Case(
        CLAUDE, "claude-sonnet-4-5", "messages", message({"input_tokens": 200_001, "output_tokens": 10}), 1.200231
    ),
    # 1,000 x 0.30 + (100 + 900) x 2.50: 900 of thinking are only in the total
    "thinking": Case(
        GEMINI,
        "gemini-2.5-flash",
        "chat",
        chat({"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 2_000}),
        0.0028,
    ),
    # 200 x 0.30 + 800 x 1 + 10 x 2.50
    "audio at Gemini": Case(GEMINI, "gemini-2.5-flash", "chat", chat(counted(1_000, 10, audio_tokens=800)), 0.000885),
    # 1,000 x 3 + (10 + 90) x 15: xAI's completion is without its thinking
    "thinking at xAI": Case(
        XAI,
        "grok-4",
        "chat",
        chat(
            {
                "prompt_tokens": 1_000,
                "completion_tokens": 10,
                "total_tokens": 1_100,
                "completion_tokens_details": {"reasoning_tokens": 90},
            }
        ),
        0.0045,
    ),
    # 1,000 x 2.75 + 100 x 11, by the model that the answer names
    "a deployment": Case(AZURE, "billing-eu", "chat", chat(counted(1_000, 100), model="gpt-4o-2024-08-06"), 0.00385),
    # 10,000 x 0.05 + 1,000 x 0.08
    "Groq": Case(GROQ, "llama-3.1-8b-instant", "chat", chat(counted(10_000, 1_000)), 0.00058),
    "a stranger's row": Case(GROQ, "llama-3.3-70b-versatile", "chat", chat(counted(10_000, 1_000)), Unpriced.MODEL),
    # 10,000 x 0.23 + 1,000 x 0.40
    "DeepInfra": Case(INFRA, "meta-llama/Llama-3.3-70B", "chat", chat(counted(10_000, 1_000)), 0.0027),
    "what OpenRouter says": Case(
        ROUTER, "anthropic/claude-4", "chat", chat({**counted(10_000, 100), "cost": 0.0123}), 0.0123
    ),
    # its own fee, and what the client's key paid
    "a key of one's own": Case(ROUTER, "anthropic/claude-4", "chat", chat(counted(10_000, 100) | OWN_KEY), 0.0105),
    "OpenRouter says nothing": Case(ROUTER, "gpt-4o", "chat", chat(counted(10_000, 100)), Unpriced.MODEL),
}


def usage_in(case: Case, *, streamed: bool) -> Usage | None:
    api = next(one for one in apis() if one.name == case.api)
    if not streamed:
        return api.response.complete_usage(case.answer)
    tap = Tap(api, "application/json")
    tap.feed(case.answer[:50])
    tap.feed(case.answer[50:])
    return tap.usage


def cost(case: Case, usage: Usage | None) -> Sum | Unpriced:
    windows = Windows(WindowRules(), read_table(json.dumps(TABLE).encode()))
    prices = upstream_prices(windows, f"https://{case.host}/v1", ())
    return price(prices, case.model, "", usage, case.asked)


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "relayed"])
@pytest.mark.parametrize("name", CASES)
def test_an_answer_costs_what_its_provider_bills(name: str, streamed: bool) -> None:
    case = CASES[name]
    found = cost(case, usage_in(case, streamed=streamed))
    assert found == case.dollars if isinstance(found, Unpriced) else found.net == pytest.approx(case.dollars)


def test_what_nobody_counted_has_no_cost() -> None:
    assert cost(CASES["plain"], None) is Unpriced.TOKENS


def test_a_search_without_a_price_is_said_to_have_none() -> None:
    usage = usage_in(CASES["Claude's searches"], streamed=False)
    assert cost(CASES["plain"], usage) is Unpriced.SEARCHES


def test_both_ways_to_read_an_answer_find_the_same() -> None:
    for name, case in CASES.items():
        whole = usage_in(case, streamed=False)
        api = next(one for one in apis() if one.name == case.api)
        assert whole is not None and whole == api.response.read(case.answer, ResponseState()).usage, name
