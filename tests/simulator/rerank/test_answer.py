"""The simulator's rerank endpoints: the order of documents, and what is too long for a server."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.app import Simulator
from proxy.simulator.settings import SimulatorConfig
from proxy.wire.refusals import compile_rules, recognise
from tests.simulator.test_app import ResponseReader, exchange

RULES = compile_rules(tomllib.loads((Path(__file__).parents[3] / "rules/refusals.toml").read_text("utf-8")))
SHIP, LONG = "the draught of a ship", "word " * 300


def asked(path: str = "/v1/rerank", provider: str = "vllm", **fields: Any) -> ResponseReader:
    config = SimulatorConfig(provider=provider, window=200, batch=200)
    body = json.dumps({"model": "r", "query": "ship", "documents": ["a red hat", SHIP], **fields}).encode()
    return asyncio.run(exchange(Simulator(config), path=path, body=body))


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_ordered_and_keep_their_indices(path: str) -> None:
    got = asked(path).json
    assert [one["index"] for one in got["results"]] == [1, 0] and got["usage"]["total_tokens"] > 0
    assert len(asked(path, top_n=1).json["results"]) == 1
    assert asked(path, documents=[{"text": SHIP}]).status == 200


@pytest.mark.parametrize(
    ("provider", "status", "field"),
    [("vllm", 400, {"truncate_prompt_tokens": -1}), ("tei", 413, {"truncate": True}), ("llamacpp", 500, {})],
)
def test_a_document_that_is_too_long_is_refused_or_cut(provider: str, status: int, field: dict[str, Any]) -> None:
    got = asked(provider=provider, documents=[SHIP, LONG])
    assert got.status == status and recognise(RULES, status, got.body) is not None
    assert asked(provider=provider, documents=[SHIP, LONG], **field).status == (200 if field else status)
    assert asked(provider=provider, documents=[SHIP, "word " * 150]).status == 200


def test_voyage_and_cohere_cut_by_themselves() -> None:
    assert asked(provider="voyage", documents=[LONG]).status == asked(provider="cohere", documents=[LONG]).status == 200
    assert asked(provider="voyage", documents=[LONG], truncation=False).status == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"query": ""}, "query"), ({"documents": []}, "documents"), ({"documents": [5]}, None)],
)
def test_what_is_missing_is_named(fields: dict[str, Any], param: str | None) -> None:
    got = asked(**fields)
    assert (got.status, got.json["error"]["param"]) == (400, param)
