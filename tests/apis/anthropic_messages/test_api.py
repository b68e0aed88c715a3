"""What the package exports."""

from proxy.apis import apis, by_path
from proxy.apis.anthropic_messages import API


def test_the_api_is_found_under_its_paths() -> None:
    assert API in apis() and API.name == "messages"
    assert by_path()["/v1/messages"] is by_path()["/messages"] is API
    assert "/v1/messages/count_tokens" not in by_path()  # it counts the client's own body, so it is passed through
