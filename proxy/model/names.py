"""Names of models as they are kept: clients choose them, so they are bounded."""

from __future__ import annotations

LONGEST_NAME = 200  # characters of a model's name: longer ones are nobody's, and clients choose them
NAMELESS = "(a name of over 200 characters)"  # what all of those are known by


def name_of(model: str) -> str:
    """What a model is known by: its name, or for all names that are too long to be any model's the same."""
    return model if len(model) <= LONGEST_NAME else NAMELESS
