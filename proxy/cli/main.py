"""The command line: plimsoll serve | inspect | models | forget | check | demo | simulate; it only reads and shows."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from proxy import __version__
from proxy.apis.openai_chat import API
from proxy.cli import admin_client
from proxy.config.rules import check_rules, load_rules
from proxy.config.settings import ADMIN_URL, SETTINGS, Settings, read_settings, unknown_variables
from proxy.config.values import Parser, whole
from proxy.errors import ClientError, ConfigError

WIDTH = 110  # columns of a help text where the terminal has more
LOCAL = "127.0.0.1"
# The settings that a plan depends on; the rest is about serving.
PLANNING = ("rules", "ladder", "max_body", "llm_fallback_enabled", "llm_allowed_fallback_models")
LIMITING = ("context_total_token_limit", "context_recent_history_token_budget", "context_rag_token_budget")
EPILOG = (
    "Each --flag is also a variable of the environment: PLIMSOLL_ and its name in capitals (--admin-port is "
    "PLIMSOLL_ADMIN_PORT), or for --llm-..., --context-... and --...-proxy the name alone."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; a wrong argument, setting or file ends it with its text and exit code 2."""
    arguments = parser().parse_args(argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows ASCII alone gets a picture all the same
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(f"plimsoll: {_as_given(str(error), arguments)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read what we print has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _as_given(text: str, arguments: argparse.Namespace) -> str:
    """An error's text with each setting called as the user gave it: by its flag where that was it."""
    for setting in SETTINGS:
        if getattr(arguments, setting.field, None) is not None:
            text = re.sub(rf"\b{setting.name}\b", setting.flag, text)
    return text


def parser() -> argparse.ArgumentParser:
    """All commands with their flags; each setting is a flag of the same name."""
    top = argparse.ArgumentParser(
        prog="plimsoll", description="Makes every request fit its model's context window.", formatter_class=_formatter
    )
    top.add_argument("--version", action="version", version=f"plimsoll {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def command(run: Callable[..., int], name: str, help: str, usage: str, epilog: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=help, description=_said(help), usage=usage, epilog=epilog, formatter_class=_formatter
        )
        made.set_defaults(run=run)
        return made

    serving = command(serve, "serve", "serve as a reverse proxy", "plimsoll serve [--flag VALUE ...]", EPILOG)
    _settings_of(serving)
    looking = command(inspect, "inspect", LOOKING, "plimsoll inspect [--json | --request] [...] FILE", EPILOG)
    looking.add_argument("file", metavar="FILE", help="the JSON body of a chat request; - reads standard input")
    output = looking.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON, as POST /inspect/v1/chat/completions does")
    output.add_argument("--request", action="store_true", help="print only the body as it would be sent")
    looking.add_argument(
        "--lorebook", metavar="NAME[,NAME]", help="lorebooks to quote from, with a ladder that recalls"
    )
    looking.add_argument("--window", type=_value(whole(1)), metavar="TOKENS", help="a smaller window than the model's")
    _settings_of(looking, (*PLANNING, *LIMITING))
    usage = "plimsoll models [--json] [--url URL] [--rules FOLDER] MODEL [MODEL ...]"
    models = command(show_models, "models", MODELS, usage)
    models.add_argument("model", nargs="+", metavar="MODEL", help="a model's name, as a request has it")
    models.add_argument("--json", action="store_true", help="print JSON instead of a table")
    models.add_argument("--url", help=f"a running proxy whose lessons are shown, too ({WHERE}, if one answers there)")
    _settings_of(models, ("rules",))
    forgetting = command(forget, "forget", FORGETTING, "plimsoll forget [--json] [--url URL] MODEL [MODEL ...]")
    forgetting.add_argument("model", nargs="+", metavar="MODEL", help="a model's name, as a request has it")
    forgetting.add_argument("--json", action="store_true", help="print JSON instead of a table")
    forgetting.add_argument("--url", help=f"that proxy ({WHERE})")
    checking = command(check, "check", "check a folder of rules", "plimsoll check [FOLDER]")
    checking.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="else PLIMSOLL_RULES, else our own")
    showing = command(demo, "demo", "an overlong conversation, straight and through the proxy", "plimsoll demo")
    showing.add_argument("--serve", action="store_true", help="leave simulator and proxy running")
    simulating = command(simulate, "simulate", SIMULATING, "plimsoll simulate [--port PORT] [...]")
    simulating.add_argument("--host", default=LOCAL, help=f"address to listen on (default: {LOCAL})")
    simulating.add_argument("--port", type=_value(whole(0, 65535)), default=8081, help="(default: 8081)")
    simulating.add_argument("--window", type=_value(whole(1)), default=8192, help="tokens (default: 8192)")
    simulating.add_argument("--provider", default="openai-old", help="the provider whose refusals it sends")
    return top


LOOKING = "show what would be done with a request's body, and send nothing"
MODELS = "show what is known of models, and from where"
FORGETTING = "have a running proxy forget what it learned of models"
WHERE = f"default: {ADMIN_URL}, else where the settings' admin port or port is"
SIMULATING = "serve the simulator: an upstream as strict as the real ones"


def _said(help: str) -> str:
    return f"{help[0].upper()}{help[1:]}."


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=min(get_terminal_size().columns - 2, WIDTH))


def _settings_of(command: argparse.ArgumentParser, fields: Collection[str] = ()) -> None:
    group = command.add_argument_group("settings")
    for setting in SETTINGS:
        if not fields or setting.field in fields:
            told = f"{setting.help} (default: {setting.default or 'none'})"
            group.add_argument(setting.flag, dest=setting.field, metavar="VALUE", help=told)


def _value(parse: Parser) -> Callable[[str], Any]:
    """A parser of settings as argparse knows them."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of environment and flags; prints a warning for each unknown variable."""
    _say_unknown_variables()
    return _read(arguments)


def _say_unknown_variables() -> None:
    for line in unknown_variables(os.environ):
        print(f"plimsoll: {line}", file=sys.stderr)


def _read(arguments: argparse.Namespace) -> Settings:
    return read_settings(os.environ, {s.field: getattr(arguments, s.field, None) for s in SETTINGS})


def serve(arguments: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    try:
        settings = _read(arguments)
    except ConfigError:
        _say_unknown_variables()
        raise
    with ExitStack() as stack:
        folder = Path(stack.enter_context(_folder())) if settings.workers > 1 else None
        from proxy.bootstrap import start

        return start(settings, unknown_variables(os.environ), folder)


def _folder() -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="plimsoll-", dir=os.environ.get("PROMETHEUS_MULTIPROC_DIR") or None)
    except OSError as error:
        raise ConfigError(f"--workers needs a folder for metrics that can be written to (TMPDIR): {error}") from None


def inspect(arguments: argparse.Namespace) -> int:
    """Shows the plan for a body and sends nothing; exit code 1 where nothing makes it fit."""
    from proxy.app import build

    services = build(replace(settings_of(arguments), redis=None), lambda outcome: None)
    services.knowledge.offline = True
    headers = [(b"x-plimsoll-window", b"%d" % arguments.window)] if arguments.window else []
    if arguments.lorebook:
        headers.append((b"x-plimsoll-lorebook", arguments.lorebook.encode()))
    if arguments.ladder:
        headers.append((b"x-plimsoll-ladder", arguments.ladder.encode()))
    try:
        body = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
        told = asyncio.run(services.inspecting.plan_of(API, body, headers))
    except OSError as error:
        raise ConfigError(f"{arguments.file}: {error.strerror}") from None
    except ClientError as error:
        raise ConfigError(f"{arguments.file}: {error.message}") from None
    _print_plan(told, arguments)
    return 0 if told["fits"] else 1


def _print_plan(told: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.request or arguments.json:  # bytes: a body may hold what is no text
        raw = msgspec.json.encode(told["request"] if arguments.request else told)
        sys.stdout.buffer.write((raw if arguments.request else msgspec.json.format(raw)) + b"\n")
    else:
        from proxy.cli.picture import show

        show(told)


def show_models(arguments: argparse.Namespace) -> int:
    """What we know of models: window, bounds, where we know it from, how it is counted; and where a proxy runs, what it
    learned. Exit code 1 where one that was named does not tell."""
    from proxy.cli.models import known, lessons, table
    from proxy.config.windows import load_windows

    settings = settings_of(arguments)
    rules = load_rules(settings.rules)
    windows = load_windows(rules.windows)
    rows = [known(model, windows, rules.families) for model in arguments.model]
    named = arguments.url or os.environ.get(ADMIN_URL, "").strip()
    url = named or _place(settings)
    try:
        told = [_asked(admin_client.learned, url, model) for model in arguments.model] if url else []
    except admin_client.Unanswered as error:
        if named:
            return _unanswered(error)
        told = []
    if arguments.json:
        with_learned = [{**row, "learned": lesson} for row, lesson in zip(rows, told, strict=True)] if told else rows
        print(json.dumps(with_learned, indent=2))
    else:
        table(rows)
        lessons(told)
    return 0


def forget(arguments: argparse.Namespace) -> int:
    """Has a running proxy forget what it learned of models, and shows what that was; exit code 1 where it does not."""
    from proxy.cli.models import lessons

    url = arguments.url or os.environ.get(ADMIN_URL, "").strip() or _place(settings_of(arguments))
    if not url:
        raise ConfigError("nobody says where the proxy is: name it with --url")
    try:
        told = [_asked(admin_client.forget, url, model) for model in arguments.model]
    except admin_client.Unanswered as error:
        return _unanswered(error)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        lessons(told)
        print(f"forgotten: {', '.join(arguments.model)}")
    return 0


def _place(settings: Settings) -> str:
    """Where a proxy with these settings shows what it learned; empty where that cannot be known."""
    if settings.admin_port is not None:
        return (
            admin_client.place(settings.admin_host or settings.host, settings.admin_port) if settings.admin_port else ""
        )
    return admin_client.place(settings.host, settings.port) if settings.port else ""


def _asked(ask: Callable[[str, str], dict[str, Any]], url: str, model: str) -> dict[str, Any]:
    try:
        return ask(url, model)
    except ValueError as error:
        raise ConfigError(f"--url {error}") from None


def _unanswered(error: admin_client.Unanswered) -> int:
    print(f"plimsoll: {error}", file=sys.stderr)
    return 1


def check(arguments: argparse.Namespace) -> int:
    """Every problem of a folder of rules; exit code 1 where there are any, 2 where there is no such folder."""
    folder = arguments.folder or settings_of(arguments).rules
    if folder is not None and not folder.is_dir():
        named = "" if arguments.folder else "PLIMSOLL_RULES: "
        raise ConfigError(f"{named}no such folder: {folder}")
    problems = check_rules(folder)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{folder or 'the built-in rules'}: no problems")
    return 1 if problems else 0


def demo(arguments: argparse.Namespace) -> int:
    """Starts the simulator and the proxy and shows what becomes of an overlong conversation."""
    from proxy.cli.demo import run

    return run(stay=arguments.serve)


def simulate(arguments: argparse.Namespace) -> int:
    """Serves the simulator, for the demo and for tests of one's own."""
    from proxy.apis import error_body
    from proxy.bootstrap import listen, shown
    from proxy.http.server.serve import run
    from proxy.observe.log import event
    from proxy.simulator.app import SimulatorConfig, simulator

    try:
        config = SimulatorConfig(provider=arguments.provider, window=arguments.window)
    except ValueError as error:
        raise ConfigError(f"--provider: {error}") from None
    doors = listen(arguments.host, arguments.port)
    print(f"plimsoll simulate: http://{shown(doors[0])}/v1", file=sys.stderr, flush=True)
    run(simulator(config), arguments.host, arguments.port, sockets=doors, settle=0, error_body=error_body, event=event)
    return 0
