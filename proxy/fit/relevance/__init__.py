"""Scoring text against text: words, BM25, the word table, turns of a chat, blocks of an agent's run, rows and lines."""
