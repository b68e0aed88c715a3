"""The settings on the command line: a flag for each, and what flags, environment and files of keys give."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from proxy.config.key_files import with_key_files
from proxy.config.settings import ADMIN_TOKEN, ADMIN_URL, SETTINGS, Settings, read_settings, unknown_variables
from proxy.config.values import Parser


def add_settings(command: argparse.ArgumentParser, fields: Collection[str] = ()) -> None:
    """Adds a flag for each setting of these fields, or for all."""
    group = command.add_argument_group("settings")
    for setting in SETTINGS:
        if not fields or setting.field in fields:
            help_text = f"{setting.help} (default: {setting.default or 'none'})"
            group.add_argument(setting.flag, dest=setting.field, metavar="VALUE", help=help_text)


def value_of(parse: Parser) -> Callable[[str], Any]:
    """A setting's parser, for argparse."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of environment and flags, without traces: in a shell `OTEL_*` may be meant for other programs.
    Prints a warning for each unknown variable."""
    warn_of_unknown_variables()
    return all_settings_of(arguments, traces=False)


def warn_of_unknown_variables() -> None:
    """Prints a line for each variable that looks like a setting and is none."""
    for line in unknown_variables(os.environ):
        print(f"plimsoll: {line}", file=sys.stderr)


def all_settings_of(arguments: argparse.Namespace, traces: bool = True) -> Settings:
    """The settings of environment and flags, with those of traces if `traces`. Raises `ConfigError`."""
    environ = environment(arguments)
    if not traces:
        environ = {name: value for name, value in environ.items() if not name.startswith("OTEL_")}
    return read_settings(environ, {s.field: getattr(arguments, s.field, None) for s in SETTINGS})


def environment(arguments: argparse.Namespace) -> Mapping[str, str]:
    """The environment, with the files of PLIMSOLL_KEYS over it."""
    return with_key_files(os.environ, getattr(arguments, "keys", None))


def named_url(arguments: argparse.Namespace) -> str:
    """The URL of the running proxy that the flag or the environment names; empty if neither does."""
    url: str = arguments.url or os.environ.get(ADMIN_URL, "").strip()
    return url


def token() -> str:
    """The token for the admin port; empty for none."""
    return os.environ.get(ADMIN_TOKEN, "").strip()
