"""The page's file, and the content security policy that follows from it: the hashes of its scripts and styles."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("page.html")
SCRIPTS = re.compile(rb"<script(?: type=\"module\")?>(.*?)</script>", re.DOTALL)
STYLES = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of the page, and its policy."""

    body: bytes
    policy: bytes


@cache
def document() -> Document:
    """The page, read once."""
    body = FILE.read_bytes()
    return Document(body, policy(body).encode())


def policy(body: bytes) -> str:
    """Permits what stands in this file, and requests to where it came from; nothing else."""
    rules = (
        "default-src 'none'",
        f"script-src {_hashes(SCRIPTS, body)}",
        f"style-src {_hashes(STYLES, body)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules)


def _hashes(elements: re.Pattern[bytes], body: bytes) -> str:
    """The hashes of the contents of elements (CSP level 3, 2.3.1)."""
    found = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in elements.findall(body))
    return " ".join(f"'sha256-{each}'" for each in found) or "'none'"
