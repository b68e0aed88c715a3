"""Decides what to send upstream: pure functions from facts to a plan. It does no I/O."""
