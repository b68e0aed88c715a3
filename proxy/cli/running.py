"""The commands that ask a running proxy: plimsoll models | forget | page | top."""

from __future__ import annotations

import argparse
import json
import sys
import webbrowser
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from proxy.cli import admin_client
from proxy.cli.arguments import named_url, settings_of, token
from proxy.cli.redirect import open_privately
from proxy.config.rules import load_rules
from proxy.config.settings import Settings
from proxy.errors import ConfigError


def models(arguments: argparse.Namespace) -> int:
    """`plimsoll models`: shows limits, their sources and how models are counted; if a proxy runs, also what it learned.

    Returns 1 if a proxy was named and does not respond.
    """
    from proxy.cli.models import describe, learned, table
    from proxy.config.windows import load_windows

    settings = settings_of(arguments)
    rules = load_rules(settings.rules)
    windows = load_windows(rules.windows)
    families = rules.families.at(urlsplit(settings.upstream).hostname or "")
    rows = [describe(model, windows, families) for model in arguments.model]
    named = named_url(arguments)
    url = named or _url_of(settings)
    try:
        found = [_call(admin_client.learned, url, model) for model in arguments.model] if url else []
    except admin_client.RequestFailed as error:
        if named:
            return _failed(error)
        found = []
    if arguments.json:
        with_learned = [{**row, "learned": one} for row, one in zip(rows, found, strict=True)] if found else rows
        print(json.dumps(with_learned, indent=2))
    else:
        table(rows)
        learned(found)
    return 0


def forget(arguments: argparse.Namespace) -> int:
    """`plimsoll forget`: makes a running proxy forget what it learned about models, and prints that.

    Returns 1 if the proxy does not respond.
    """
    from proxy.cli.models import learned

    url = named_url(arguments) or _url_of(settings_of(arguments))
    if not url:
        raise ConfigError("the proxy's address is unknown: set --url")
    try:
        forgotten = [_call(admin_client.forget, url, model) for model in arguments.model]
    except admin_client.RequestFailed as error:
        return _failed(error)
    if arguments.json:
        print(json.dumps(forgotten, indent=2))
    else:
        learned(forgotten)
        print(f"forgotten: {', '.join(arguments.model)}")
    return 0


def page(arguments: argparse.Namespace) -> int:
    """`plimsoll page`: opens the page of a running proxy in a browser, and prints its URL.

    The browser gets the token behind a `#`, which it sends to no server, and from a file, so that it is no argument of
    the browser's. Returns 1 if nothing responds there. Raises `ConfigError` if there is no URL.
    """
    settings = settings_of(arguments)
    url = named_url(arguments)
    if not url and settings.admin_port is None:
        raise ConfigError("the page is on the admin port: set PLIMSOLL_ADMIN_PORT as the proxy has it, or --url")
    url = f"{(url or _url_of(settings)).rstrip('/')}/"
    if url == "/":
        raise ConfigError("the proxy's address is unknown: set --url")
    try:
        admin_client.overview(url, settings.admin_token or admin_client.NO_TOKEN)
    except admin_client.RequestFailed as error:
        if not error.reached:  # a page without its token asks for it
            return _failed(error)
    except ValueError as error:
        raise ConfigError(f"--url {error}") from None
    print(url, flush=True)
    if settings.admin_token:
        open_privately(f"{url}#token={quote(settings.admin_token)}")
    else:
        webbrowser.open(url)
    return 0


def top(arguments: argparse.Namespace) -> int:
    """`plimsoll top`: shows the figures of a running proxy until `q`; once if the output is no terminal.

    Returns 1 if it is to show them once and the proxy does not respond.
    """
    from proxy.cli.top import live, once

    settings = settings_of(arguments)
    url, key = named_url(arguments), settings.admin_token or admin_client.NO_TOKEN
    if not url and settings.admin_port:
        url = _url_of(settings)
    if not url:
        raise ConfigError("the proxy's admin port is unknown: set PLIMSOLL_ADMIN_PORT, or --url")
    try:
        if arguments.once or arguments.json or not sys.stdout.isatty():
            return once(url, key, arguments.json)
        return live(url, key)
    except ValueError as error:
        raise ConfigError(f"--url {error}") from None


def _url_of(settings: Settings) -> str:
    """The URL of the admin endpoints of a proxy with these settings; "" if its port is chosen at start."""
    host, port, scheme = settings.host, settings.port, "http" if settings.tls_cert is None else "https"
    if settings.admin_port is not None:
        host, port = settings.admin_host or host, settings.admin_port
    return admin_client.url_of(host, port, scheme) if port else ""


def _call(function: Callable[[str, str, str], dict[str, Any]], url: str, model: str) -> dict[str, Any]:
    try:
        return function(url, model, token() or admin_client.NO_TOKEN)
    except ValueError as error:
        raise ConfigError(f"--url {error}") from None


def _failed(error: admin_client.RequestFailed) -> int:
    print(f"plimsoll: {error}", file=sys.stderr)
    return 1
