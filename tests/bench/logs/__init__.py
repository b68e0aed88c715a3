"""Logs made by script, each with one line that a question is about."""
