"""Plimsoll: a transparent, OpenAI-compatible reverse proxy that makes every request fit its model's window."""

__version__ = "0.1.0"
