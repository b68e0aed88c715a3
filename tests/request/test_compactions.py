"""Which requests ask for a summary of the conversation."""

from __future__ import annotations

import json

from proxy.apis.openai_responses import API
from proxy.model.plan import Mode
from proxy.request.compactions import is_compaction
from proxy.request.stages import Received, Scanned


def asks(path: str, *items: object) -> bool:
    body = json.dumps({"model": "gpt-4o", "input": list(items)}).encode()
    return is_compaction(Received(API, Mode.FIT, path, body=body), Scanned(body, API.request.scan(body)))


def test_what_the_provider_is_to_compact_is_one() -> None:
    talk = {"role": "user", "content": "Hi"}
    assert asks(API.compact_paths[0], talk) and asks("/v1/responses", talk, {"type": "compaction_trigger"})
    assert not asks("/v1/responses", talk)
