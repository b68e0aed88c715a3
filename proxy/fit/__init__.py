"""Deciding what to send: pure functions from what is known to what is to be done; it does no I/O."""
