"""The page's policy: it permits the file's own scripts and styles."""

from __future__ import annotations

import base64
import hashlib

from proxy.admin.policy import FILE, document, policy


def hashed(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def test_the_hashes_are_those_of_the_contents_of_elements() -> None:
    body = b'<style>a{}\n</style><script>1</script><p><script type="module">\n2\n</script>'
    rules = dict(rule.split(" ", 1) for rule in policy(body).split("; "))
    assert rules["script-src"] == " ".join([hashed(b"1"), hashed(b"\n2\n")])
    assert rules["style-src"] == hashed(b"a{}\n")
    assert (rules["default-src"], rules["frame-ancestors"], rules["connect-src"]) == ("'none'", "'none'", "'self'")


def test_a_file_without_scripts_runs_none() -> None:
    assert "script-src 'none'; style-src 'none'" in policy(b"<p>")


def test_the_page_is_in_the_package_and_each_of_its_scripts_is_permitted() -> None:
    page = document()
    assert page.body == FILE.read_bytes()
    assert page.body.count(b"<script") == page.policy.partition(b"script-src ")[2].partition(b";")[0].count(b"sha256-")
    assert page.body.count(b"<style") == page.policy.partition(b"style-src ")[2].partition(b";")[0].count(b"sha256-")
