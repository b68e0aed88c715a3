"""An API on a path that names the model, as that of a deployment does (Azure): the body need not.

The model that the path means, such as the one that a deployment runs, is planned for; the client's body keeps its own
`model`, or none.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from proxy.model.api import Api, RequestFormat, no_known_prefix
from proxy.model.conversation import Prompt
from proxy.model.lenient_json import raw_fields
from proxy.model.scan import KnownPrefix, Scan
from proxy.model.structs import replace

MODEL = "model"


def deployed(api: Api, model: str) -> Api:
    """The API with requests that are for `model`, whatever their bodies say. All else is that of `api`."""
    return replace(api, request=_Deployed(api.request, model))


class _Deployed:
    """The requests of an API for one model."""

    def __init__(self, request: RequestFormat, model: str) -> None:
        self._request, self._model = request, model
        self._field = b'{"%b":%b,' % (MODEL.encode(), msgspec.json.encode(model))
        self.recognises, self.render = request.recognises, request.render
        self.without_extension, self.without_stream = request.without_extension, request.without_stream
        self.known_prefix = no_known_prefix  # the body is not what was scanned

    def scan(self, body: bytes, known: KnownPrefix | None = None) -> Scan:
        """As the API; see `RequestFormat.scan`."""
        return replace(self._request.scan(self._named(body), None), model=self._model)

    def parse(
        self,
        body: bytes,
        pins: Collection[int] = (),
        start: int = 0,
        plain: bool = False,
        known: KnownPrefix | None = None,
    ) -> Prompt:
        """As the API; see `RequestFormat.parse`. No step moves the request to another model, which its path would not
        name."""
        named = self._named(body)
        prompt = self._request.parse(named, pins, start, plain)
        head = prompt.head if named is body else {k: raw for k, raw in prompt.head.items() if k != MODEL}
        return replace(prompt, model=self._model, head=head, placed=True)

    def _named(self, body: bytes) -> bytes:
        """The body with a model."""
        if b'"%b"' % MODEL.encode() in body and MODEL in raw_fields(body):
            return body
        rest = body.lstrip()
        return self._field + rest[1:] if rest[:1] == b"{" and rest[1:].lstrip()[:1] == b'"' else body
