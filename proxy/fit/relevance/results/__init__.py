"""Shortens tool results to what is relevant to the query: rows of JSON, lines of text. Pure."""
