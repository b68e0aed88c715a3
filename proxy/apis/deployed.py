"""An API on the path of a deployment (Azure): the path names the model, and the body need not.

The model that the deployment runs is planned for; the client's body keeps its own `model`, or none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.lenient_json import raw_fields
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan
from proxy.model.structs import replace

MODEL = "model"
PATHS = ("/chat/completions", "/completions", "/embeddings")  # behind the path of a deployment


class Deployed:
    """An `Api` whose requests are for `model`, whatever their bodies say. All else is that of `api`."""

    def __init__(self, api: Api, model: str) -> None:
        self._api, self._model = api, model
        self._field = b'{"%b":%b,' % (MODEL.encode(), msgspec.json.encode(model))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def scan(self, body: bytes, known: KnownPrefix | None = None) -> Scan:
        """As the API; see `Api.scan`."""
        return replace(self._api.scan(self._named(body), None), model=self._model)

    def known_prefix(self, body: bytes, scan: Scan, digest: PrefixDigest) -> None:
        """None: the body is not what was scanned."""

    def parse(
        self,
        body: bytes,
        pins: Collection[int] = (),
        start: int = 0,
        plain: bool = False,
        known: KnownPrefix | None = None,
    ) -> Prompt:
        """As the API; see `Api.parse`. No step moves the request to another model, which its path would not name."""
        named = self._named(body)
        prompt = self._api.parse(named, pins, start, plain)
        head = prompt.head if named is body else {k: raw for k, raw in prompt.head.items() if k != MODEL}
        return replace(prompt, model=self._model, head=head, placed=True)

    def render(self, prompt: Prompt, plan: Plan) -> bytes:
        """As the API; see `Api.render`."""
        return self._api.render(prompt, plan)

    def _named(self, body: bytes) -> bytes:
        """The body with a model."""
        if b'"%b"' % MODEL.encode() in body and MODEL in raw_fields(body):
            return body
        rest = body.lstrip()
        return self._field + rest[1:] if rest[:1] == b"{" and rest[1:].lstrip()[:1] == b'"' else body
