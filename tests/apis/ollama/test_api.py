"""What the package exports."""

from proxy.apis import apis, by_path
from proxy.apis.ollama import API


def test_the_api_is_found_under_its_path() -> None:
    assert API in apis() and API.name == "ollama" and by_path()["/api/chat"] is API
    assert API.server.roots[0] == "/api/"
