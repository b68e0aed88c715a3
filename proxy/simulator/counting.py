"""The simulator's own count of a prompt: the recipe that the proxy counts with, and nothing remembered."""

from __future__ import annotations

from proxy.errors import ClientError
from proxy.model.ports import Memory


class Forgets:
    """A memory for a meter that is used once."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """Nothing, always."""
        return None

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        """Forgets it."""


def count_prompt(body: bytes) -> int:
    """Prompt tokens by the recipe that the proxy counts with. Raises `ClientError` for what it cannot read."""
    from proxy.apis.openai_chat.request import parse
    from proxy.fit.blocks import runs
    from proxy.tokens.meter import meter_for
    from proxy.wire.scan import NotUnderstood

    try:
        prompt = parse(body)
    except NotUnderstood as reason:
        raise ClientError(400, f"Invalid request: {reason}") from None
    memory: Memory = Forgets()
    meter = meter_for(prompt, prompt.model, memory)
    return sum(meter.fixed.values()) + sum(sum(meter.costs(run)) for run in runs(prompt.messages))
