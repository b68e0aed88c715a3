"""What requests to the rows of upstreams.toml are sent with."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.settings import read_settings
from proxy.config.upstreams import UpstreamRow
from proxy.errors import ConfigError
from proxy.upstreams.routing import routing
from proxy.upstreams.senders import make_senders, make_upstream
from proxy.upstreams.upstream import Upstream


def senders(*rows: UpstreamRow, **variables: str) -> dict[str, object]:
    return dict(make_senders(read_settings({}), routing(rows).routes, variables))


def test_each_row_has_a_sender_with_its_key() -> None:
    made = senders(UpstreamRow("a", "http://a/v1", key="K"), UpstreamRow("b", "https://b/v1"), K="op")
    a, b = made["a"], made["b"]
    assert isinstance(a, Upstream) and isinstance(b, Upstream)
    assert (a.has_key, b.has_key) == (True, False) and a.access is not None and a.access.key is not None


def test_every_problem_is_told_with_the_name_of_its_row(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("x")
    broken = UpstreamRow("b", "https://b/v1", ca=str(tmp_path / "x.pem"))
    with pytest.raises(ConfigError) as caught:
        senders(UpstreamRow("a", "http://a/v1", key="K"), broken)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"upstreams.toml, upstream {name}" for name in "ab"]


def test_the_clients_upstream_alone_gets_the_client_certificate(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("x")
    given = {"PLIMSOLL_UPSTREAM": "https://a/v1", "PLIMSOLL_UPSTREAM_CERT": str(tmp_path / "x.pem")}
    settings = read_settings({**given, "PLIMSOLL_UPSTREAM_KEY": str(tmp_path / "x.pem")})
    for url in (None, "https://a/v1"):
        with pytest.raises(ConfigError):
            make_upstream(settings, url, None)
    assert (
        make_upstream(settings, "https://b/v1", "K").has_key
        and not make_upstream(read_settings({}), None, None).has_key
    )
