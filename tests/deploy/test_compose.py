"""The compose file: valid for the compose specification, confined, and bound to loopback."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from proxy import __version__
from proxy.config.settings import SETTINGS, read_settings
from proxy.request.web_pages import web_pages
from tests.deploy.renders import missing
from tests.deploy.schemas import misspelt

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
ENVIRONMENT: dict[str, str] = SERVICES["plimsoll"]["environment"]
DEFAULTS = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in ENVIRONMENT.items()}


def validator() -> Draft202012Validator:
    """The schema of the compose specification, as check-jsonschema ships it."""
    spec = find_spec("check_jsonschema")
    if spec is None or spec.origin is None:
        missing("check-jsonschema is not installed (make test installs it)")
    return Draft202012Validator(
        json.loads((Path(spec.origin).parent / "builtin_schemas/vendor/compose-spec.json").read_text())
    )


def test_it_is_valid() -> None:
    assert [error.message for error in validator().iter_errors(COMPOSE)] == []


OWN_NAMES = re.compile(r"(x-confined.*|services\.[^.]+|services\..+\.environment\..+|volumes\..+)$")


def test_every_field_that_is_misspelt_is_found() -> None:
    check = validator()
    tried = [(path, changed) for path, changed in misspelt(COMPOSE) if not OWN_NAMES.match(path)]
    assert [path for path, changed in tried if check.is_valid(changed)] == []
    assert len(tried) > 40


def test_every_service_is_confined_and_published_on_loopback_alone() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert isinstance(service.get("healthcheck", {}).get("test", []), list), name


def test_only_plimsoll_starts_without_a_profile() -> None:
    assert {name: service.get("profiles") for name, service in SERVICES.items()} == {
        "plimsoll": None,
        "redis": ["redis"],
        "prometheus": ["metrics"],
        "grafana": ["metrics"],
    }


def test_settings_are_ones_that_there_are_with_the_defaults_of_the_proxy() -> None:
    defaults = {setting.name: setting.default for setting in SETTINGS}
    named = {"PLIMSOLL_HOSTS": "plimsoll"}  # the port is published on loopback, and the other containers use this name
    assert {name: defaults[name] for name in DEFAULTS} | named == DEFAULTS and named["PLIMSOLL_HOSTS"] in SERVICES
    assert web_pages(read_settings({"PLIMSOLL_HOST": "0.0.0.0", **DEFAULTS})).near
    drain = read_settings(DEFAULTS).drain
    assert int(SERVICES["plimsoll"]["stop_grace_period"].removesuffix("s")) > drain
    assert SERVICES["plimsoll"]["image"] == f"plimsoll:{__version__}"


def test_what_is_mounted_is_there() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    for source in (mount.partition(":")[0] for mount in mounts):
        assert (DEPLOY / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"]


def test_prometheus_finds_the_admin_port_and_grafana_prometheus() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["names"] == ["plimsoll"]
    assert f"127.0.0.1:{found['port']}:{found['port']}" in SERVICES["plimsoll"]["ports"]
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert [source["url"] for source in sources] == ["http://prometheus:9090"]
    (boards,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/files.yaml").read_text())["providers"]
    assert f"./grafana/dashboards:{boards['options']['path']}:ro" in SERVICES["grafana"]["volumes"]


def test_promtool_accepts_prometheus_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool is not installed")
    command = [promtool, "check", "config", str(DEPLOY / "prometheus/prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
