"""`plimsoll caller`: the hashes of keys, as rules by caller have them."""

from __future__ import annotations

import sys
from getpass import getpass

from proxy.errors import ConfigError
from proxy.request.callers import hash_of


def run(secret: bytes | None) -> int:
    """Prints the hash of each key in standard input. On a terminal it asks for one, and shows none of it. Raises
    `ConfigError` for what is no key, and without a secret."""
    if secret is None:
        raise ConfigError("PLIMSOLL_SECRET is not set: the hash of a key depends on it, on all replicas")
    lines = [getpass("key: ")] if sys.stdin.isatty() else sys.stdin.read().splitlines()
    keys = [line.split() for line in lines if line.strip()]
    if not keys or not all(len(words) == 1 or (len(words) == 2 and words[0].lower() == "bearer") for words in keys):
        raise ConfigError("standard input must have a key on each line, without spaces in it")
    for words in keys:
        print(hash_of(secret, words[-1].encode()))
    return 0
