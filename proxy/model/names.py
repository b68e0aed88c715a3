"""Bounds the names of models, which clients choose and caches keep."""

from __future__ import annotations

LONGEST_NAME = 200  # characters; no model has a longer name
NAMELESS = "(a name of over 200 characters)"  # stands for every longer name


def name_of(model: str) -> str:
    """The name, or `NAMELESS` if it is longer than `LONGEST_NAME`."""
    return model if len(model) <= LONGEST_NAME else NAMELESS
