"""Makes the edits of context that a request asks for where its upstream does not know them, before it is fitted.

A bug of ours takes the edits from the request, and nothing else: it is still fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from proxy.model.api import ContextEdits
from proxy.model.conversation import Prompt
from proxy.model.ports import Meter
from proxy.request.bugs import report_bug
from proxy.request.facts import Knowledge
from proxy.request.stages import Received, Record, Scanned
from proxy.request.work import HEAVY_BYTES, Pool
from proxy.wire.body import without_fields
from proxy.wire.scan import NotUnderstood

NONE_APPLIED = b"[]"


@dataclass(frozen=True, slots=True)
class ContextEditor:
    """Edits requests to one upstream; `lacking`: it does not know the edits."""

    knowledge: Knowledge
    pool: Pool
    lacking: bool = False

    def edits_of(self, received: Received, plain: bytes) -> ContextEdits | None:
        """What makes the edits that a body may ask for; None if they are left to the upstream."""
        edits = received.api.edits if self.lacking and received.may_change else None
        return edits if edits is not None and edits.field in plain else None

    async def edited(self, received: Received, scanned: Scanned, record: Record) -> Scanned:
        """The request after its edits. Raises `NotUnderstood`."""
        edits = self.edits_of(received, scanned.plain)
        if edits is None or scanned.left_out:
            return scanned
        heavy, model, learned = len(scanned.plain) > HEAVY_BYTES, scanned.model, scanned.learned

        def meter_of(prompt: Prompt) -> Meter:
            return self.knowledge.meter(prompt, model, learned)

        try:
            plain, applied = await self.pool.run(heavy, edits.apply, scanned.plain, meter_of)
        except NotUnderstood:
            raise
        except Exception as error:
            report_bug(record, error)
            plain = await self.pool.run(heavy, without_fields, scanned.plain, (edits.name,))
            applied = NONE_APPLIED
        scan = await self.pool.run(heavy, received.api.request.scan, plain)
        return replace(scanned, plain=plain, scan=scan, applied=applied)
