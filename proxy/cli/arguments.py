"""The settings on the command line: a flag for each, and what flags, environment and files of keys give."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

from proxy.config.key_files import with_key_files
from proxy.config.settings import ADMIN_TOKEN, ADMIN_URL, SETTINGS, Setting, Settings, read_settings, unknown_variables
from proxy.config.values import Parser

UNKNOWN = re.compile(r"invalid choice: '([^']*)'|unrecognized arguments: (--[\w-]+)")  # in argparse's own words
# What follows a flag, by the end of its setting's name; the first that fits.
KINDS = {
    ("_PORT",): "PORT",
    ("_HOST",): "ADDRESS",
    ("_NAMES", "_HOSTS", "NO_PROXY"): "NAME[,NAME]",
    ("_ORIGINS", "_UPSTREAM", "_PROXY", "_REDIS"): "URL",
    ("_TIMEOUT", "_DRAIN", "_PROBE_AFTER"): "SECONDS",
    ("_RULES", "_KEYS", "_RECORD"): "FOLDER",
    ("_API_KEY", "_TOKEN", "_SECRET"): "KEY",
    ("_CA", "_CERT", "_UPSTREAM_KEY"): "FILE",
    ("_MAX_BODY", "_MAX_MEMORY", "_RECORD_SIZE", "_MIN_RATE"): "SIZE",
    ("_TOKEN_LIMIT", "_TOKEN_BUDGET", "_EXTRA_CALLS_BUDGET", "_EFFECTIVE"): "TOKENS",
    ("_MODEL", "_MODELS"): "MODEL",
    ("_WORKERS", "_MAX_CONNECTIONS", "_MAX_PER_ADDRESS"): "N",
}
NO_FILE = "there is no configuration file: settings are flags and environment variables, rules a folder (--rules)"


class CommandParser(argparse.ArgumentParser):
    """A parser that knows its arguments, those of its groups too, and says what an unknown command or flag was probably
    meant to be. `commands` are the parsers of its commands."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        self.arguments: list[argparse.Action] = []
        self.commands: Mapping[str, CommandParser] = {}
        super().__init__(*positional, **named)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Adds an argument, as `argparse` does."""
        return self._known(super().add_argument(*names, **options))

    def add_argument_group(self, *names: Any, **options: Any) -> Any:
        """Adds a group whose arguments are known, too."""
        return self._watched(super().add_argument_group(*names, **options))

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        """Adds such a group."""
        return self._watched(super().add_mutually_exclusive_group(**options))

    def _watched(self, group: Any) -> Any:
        add = group.add_argument
        group.add_argument = lambda *names, **options: self._known(add(*names, **options))
        return group

    def _known(self, action: argparse.Action) -> argparse.Action:
        self.arguments.append(action)
        return action

    @property
    def names(self) -> list[str]:
        """The commands, and the flags of all of them."""
        flags = {flag for command in self.commands.values() for one in command.arguments for flag in one.option_strings}
        return [*self.commands, *sorted(flags)]

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        found = UNKNOWN.search(message)
        super().error(message + (hint(found[1] or found[2], self.names) if found else ""))


def hint(name: str, known: Sequence[str]) -> str:
    """What is added to the error on an unknown command or flag; empty if it is like none."""
    if name == "--config":
        return f"; {NO_FILE}"
    if name in known:
        return "; it is one of other commands"
    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {similar[0]}?" if similar else ""


def empty_keys(arguments: argparse.Namespace) -> tuple[str, ...]:
    """A line for each flag of a key that is given and empty, as by a variable of a script that is not set."""
    keys = [setting for setting in SETTINGS if setting.field.endswith("api_key")]
    given = [(setting.flag, getattr(arguments, setting.field, None)) for setting in keys]
    return tuple(
        f"{flag} is empty: there is no such key" for flag, text in given if text is not None and not text.strip()
    )


def add_settings(command: argparse.ArgumentParser, fields: Collection[str] = ()) -> None:
    """Adds a flag for each setting of these fields, or for all."""
    group = command.add_argument_group("settings")
    for setting in SETTINGS:
        if not fields or setting.field in fields:
            help_text = f"{setting.help} (default: {setting.default or 'none'})"
            group.add_argument(setting.flag, dest=setting.field, metavar=kind_of(setting), help=help_text)


def kind_of(setting: Setting) -> str:
    """What the help calls the value of a setting."""
    if setting.default in ("true", "false"):
        return "true|false"
    return next((kind for ends, kind in KINDS.items() if setting.name.endswith(ends)), "VALUE")


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
