"""What the package exports."""

from proxy.apis import apis, by_path, stream_format
from proxy.apis.ollama_generate import API


def test_the_api_is_found_under_its_path() -> None:
    assert API in apis() and API.name == "generate" and by_path()["/api/generate"] is API
    assert stream_format("/api/generate") is API.response and API.server.roots[0] == "/api/"
