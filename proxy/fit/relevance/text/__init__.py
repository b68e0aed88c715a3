"""Scores of texts for a query: tokens, words, dates, BM25 and word similarity. Pure; caches never change a result."""
