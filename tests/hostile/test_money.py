"""The operator's money and secrets: where the operator's key goes, and what is asked in the operator's name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.config.settings import read_settings
from tests.hostile.harness import CHAT, HELLO, Running, running, upstream
from tests.recorder import Recorder

KEY = "sk-canary-of-the-operator"


@pytest.fixture(scope="module")
def paid() -> Iterator[tuple[Recorder, Running]]:
    """A proxy with a key of the operator's, and an admin port."""
    with upstream() as there, running(there.url, admin=True, PLIMSOLL_API_KEY=KEY) as proxy:
        yield there, proxy


def sent_key(there: Recorder) -> bool:
    """Whether the newest request that the upstream saw bore the operator's key."""
    return KEY.encode() in there.requests[-1].head


def without(proxy: Running, path: str, method: str = "", body: object = None, **headers: str) -> int:
    """The status of a request that brings no key of its own."""
    return proxy.ask(body, path, method, headers, key=None).status


def test_F16_the_operators_key_goes_only_to_the_endpoints_that_it_is_meant_for(
    paid: tuple[Recorder, Running],
) -> None:
    there, proxy = paid
    for path in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "//v1/responses/"):
        without(proxy, path, body=HELLO)
        assert sent_key(there), path
    without(proxy, "/v1/models")
    assert sent_key(there)
    for method, path in (
        ("GET", "/v1/organization/admin_api_keys"),
        ("POST", "/v1/organization/admin_api_keys"),
        ("GET", "/v1/files"),
        ("DELETE", "/v1/models"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/models/../organization/admin_api_keys"),
        ("POST", "/v1/chat%2Fcompletions"),
        ("GET", CHAT),
    ):
        without(proxy, path, method, body=HELLO if method == "POST" else None)
        assert there.requests[-1].target == path.encode(), "it is passed on"
        assert not sent_key(there), (method, path)


@pytest.mark.parametrize("credential", ["authorization", "x-api-key", "api-key"])
def test_F16_a_key_that_the_client_hides_is_not_replaced_by_the_operators(
    credential: str, paid: tuple[Recorder, Running]
) -> None:
    there, proxy = paid
    without(proxy, CHAT, body=HELLO, **{credential: "Bearer sk-mine", "connection": credential})
    assert not sent_key(there)
    assert not there.requests[-1].header(credential.encode())


def test_F16_a_client_with_a_key_of_its_own_never_gets_the_operators(paid: tuple[Recorder, Running]) -> None:
    there, proxy = paid
    proxy.ask(HELLO)
    assert there.requests[-1].header(b"authorization") == [b"Bearer sk-test"]


OWN = ("/metrics", "/healthz", "/readyz", "/inspect" + CHAT, "/inspect/v1/responses", "/inspect")


@pytest.mark.parametrize("spelling", ["{}", "/{}", "{}/", "{}?x=1", "/v1/..{}", "/.{}"])
@pytest.mark.parametrize("path", OWN)
def test_F16_own_paths_never_reach_the_provider(path: str, spelling: str, paid: tuple[Recorder, Running]) -> None:
    there, proxy = paid
    before = len(there.requests)
    for method in ("GET", "POST", "DELETE"):
        answered = proxy.ask(HELLO if method == "POST" else None, spelling.format(path), method)
        assert (answered.status, answered.json["error"]["code"]) == (404, "not_found")
    assert len(there.requests) == before
    assert proxy.ask(HELLO if "inspect/v1/chat" in path else None, path, admin=True).status == (
        404 if path in OWN[-2:] else 200
    )


def test_F16_without_an_admin_port_they_are_here_and_nothing_else_is(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers) as proxy:
        for path in OWN[:3]:
            assert proxy.ask(path=f"/{path}/").status == 200
            assert proxy.ask(path=path, method="POST").status == 405
        assert proxy.ask(HELLO, "/inspect/" + CHAT).json["fits"]
        assert proxy.ask(HELLO, "/inspect/v1/responses").status == 404
        assert proxy.ask(path="/inspect" + CHAT).status == 405
        assert there.requests == []
        assert proxy.ask(HELLO, "/v1//chat/completions/").headers["x-plimsoll-tokens"] == "8"
        assert there.requests[-1].target == b"/v1//chat/completions/", "as the client wrote it"
        assert proxy.ask(path="/v1/metrics").status == 200 and there.requests[-1].target == b"/v1/metrics"


def test_F16_the_admin_port_has_a_host_of_its_own(workers: int) -> None:
    with (
        upstream() as there,
        running(there.url, workers=workers, admin=True, PLIMSOLL_ADMIN_HOST="0.0.0.0") as proxy,
    ):
        (line,) = [line for line in proxy.lines if "/metrics" in line]
        assert f"http://0.0.0.0:{proxy.admin_port}" in line
        assert proxy.ask(path="/metrics", admin=True).status == 200
        assert any(f"http://127.0.0.1:{proxy.port}/v1" in line for line in proxy.lines)


def test_F16_no_setting_shows_the_key() -> None:
    assert KEY not in repr(read_settings({"PLIMSOLL_API_KEY": KEY}))
