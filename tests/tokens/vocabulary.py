"""A tokenizer.json of the smallest kind, for tests: a word or a sign is one token."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ("[UNK]", "one", "two", "three", "four")


def write(path: Path, *more: str) -> Path:
    """Writes it, with more words. It would cut texts after three tokens, if that were not undone."""
    vocabulary = {word: number for number, word in enumerate((*WORDS, *more))}
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
                "padding": None,
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
            }
        )
    )
    return path
