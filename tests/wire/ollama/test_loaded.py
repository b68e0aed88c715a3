"""What an Ollama server says that it has loaded."""

from __future__ import annotations

from proxy.wire.ollama.loaded import tagged, windows_in


def test_an_answer_is_read_leniently() -> None:
    assert windows_in(b'{"models":[{"name":"a:7b","context_length":5},{"name":"b"}],"x":1}') == {"a:7b": 5}
    assert windows_in(b"{}") == {} and windows_in(b'{"models":null}') == {}
    assert [tagged(name) for name in ("M", "m:1B", "host:80/m", "hf.co/x/m:q4")] == [
        "m:latest",
        "m:1b",
        "host:80/m:latest",
        "hf.co/x/m:q4",
    ]
