"""Doing it: the only package with I/O; nothing but cli imports it."""
