"""Texts: words, queries, scores."""
