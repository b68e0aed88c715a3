"""The command line: plimsoll serve, run, page, inspect, replay, top, models, forget, check, caller, demo, simulate,
completion.

Commands import what they need when they run, so that `plimsoll --help` starts quickly.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from proxy import __version__
from proxy.apis import api_of, usual
from proxy.cli import running
from proxy.cli.arguments import (
    CommandParser,
    add_settings,
    all_settings_of,
    empty_keys,
    environment,
    settings_of,
    value_of,
    warn_of_unknown_variables,
)
from proxy.cli.completion import SHELLS, commands_of
from proxy.cli.texts import (
    ADMIN_DEFAULT,
    CALLER_EPILOG,
    CALLER_HELP,
    CHECK_HELP,
    COMPLETION_EPILOG,
    COMPLETION_HELP,
    DEMO_HELP,
    EPILOG,
    FORGET_HELP,
    INSPECT_HELP,
    MODELS_HELP,
    NO_REQUEST,
    PAGE_HELP,
    REPLAY_FILES,
    REPLAY_HELP,
    RUN_HELP,
    SIMULATE_HELP,
    SIMULATED,
    TOP_HELP,
    URL_DEFAULT,
)
from proxy.config.rules import load_rules
from proxy.config.settings import SETTINGS, unknown_variables
from proxy.config.values import tokens, whole
from proxy.errors import ClientError, ConfigError
from proxy.model.lenient_json import raw_fields

AddParser = Callable[..., argparse.ArgumentParser]  # of `argparse`, for one command
MAX_HELP_WIDTH = 110  # columns
LOCAL = "127.0.0.1"
# What `run` decides itself.
GIVEN_BY_RUN = frozenset(("host", "port", "admin_host", "admin_port", "log", "workers", "tls_cert", "tls_key"))
# The settings that a plan depends on.
PLAN_SETTINGS = ("rules", "ladder", "max_body", "llm_fallback_enabled", "llm_allowed_fallback_models")
BUDGET_SETTINGS = ("context_total_token_limit", "context_recent_history_token_budget", "context_rag_token_budget")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. An invalid argument, setting or file prints its error and returns 2."""
    arguments = parser().parse_args(argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals with ASCII only
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(f"plimsoll: {_with_flag_names(str(error), arguments)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _with_flag_names(text: str, arguments: argparse.Namespace) -> str:
    """An error's text, with the flag instead of the variable of each setting that was set by its flag."""
    for setting in SETTINGS:
        if getattr(arguments, setting.field, None) is not None:
            text = re.sub(rf"\b{setting.name}\b", setting.flag, text)
    return text


def parser() -> CommandParser:
    """The parser of all commands. Each setting is a flag with the same name."""
    top = CommandParser(
        prog="plimsoll", description="Makes every request fit its model's context window.", formatter_class=_formatter
    )
    top.add_argument("--version", action="version", version=f"plimsoll {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for add_commands in (
        _add_serve,
        _add_run,
        _add_inspect,
        _add_replay,
        _add_models,
        _add_running,
        _add_check,
        _add_trials,
        _add_completion,
    ):
        add_commands(commands.add_parser)
    top.commands = commands.choices
    return top


def _command(
    add: AddParser,
    run: Callable[..., int],
    name: str,
    help: str,
    usage: str,
    epilog: str = "",
    form: type[argparse.HelpFormatter] = argparse.HelpFormatter,
) -> argparse.ArgumentParser:
    formatter = partial(_formatter, form=form)
    command = add(name, help=help, description=_sentence(help), usage=usage, epilog=epilog, formatter_class=formatter)
    command.set_defaults(run=run)
    return command


def _add_serve(add: AddParser) -> None:
    usage = "plimsoll serve [--flag VALUE ...]"
    add_settings(_command(add, serve, "serve", "serve as a reverse proxy", usage, EPILOG))


def _add_run(add: AddParser) -> None:
    usage = "plimsoll run [--page] [--flag VALUE ...] -- COMMAND [ARGUMENT ...]"
    command = _command(add, run, "run", RUN_HELP, usage, EPILOG)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program, after --")
    command.add_argument("--page", action="store_true", help="leave the page open when the program has ended")
    add_settings(command, [s.field for s in SETTINGS if s.field not in GIVEN_BY_RUN])


def _add_inspect(add: AddParser) -> None:
    usage = "plimsoll inspect [--json | --request | --all] [...] FILE"
    command = _command(add, inspect, "inspect", INSPECT_HELP, usage, EPILOG)
    command.add_argument("file", metavar="FILE", help="the JSON body of a request; - reads standard input")
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON, as POST /inspect/... does")
    output.add_argument("--request", action="store_true", help="print only the body as it would be sent")
    output.add_argument("--all", action="store_true", help="a row for every message, and all lines left out of it")
    command.add_argument(
        "--lorebook", metavar="NAME[,NAME]", help="lorebooks to quote from; needs a ladder with the step recall"
    )
    command.add_argument("--window", type=value_of(tokens), metavar="TOKENS", help="a smaller window than the model's")
    command.add_argument("--pin", metavar="N[,N]", help="messages that must stay whole, by their numbers from 0")
    command.add_argument("--mode", metavar="MODE", help="off, observe, fit or strict")
    command.add_argument("--caller", metavar="NAME", help="plan it under the rule of this caller in callers.toml")
    add_settings(command, (*PLAN_SETTINGS, *BUDGET_SETTINGS))


def _add_models(add: AddParser) -> None:
    usage = "plimsoll models [--json] [--url URL] [--rules FOLDER] MODEL [MODEL ...]"
    command = _command(add, running.models, "models", MODELS_HELP, usage)
    _add_model_names(command)
    command.add_argument("--url", help=f"also show what this running proxy learned ({URL_DEFAULT}, if one responds)")
    add_settings(command, ("rules",))


def _add_model_names(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", nargs="+", metavar="MODEL", help="a model's name, as in a request")
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _add_running(add: AddParser) -> None:
    """The commands for a proxy that runs."""
    usage = "plimsoll forget [--json] [--url URL] MODEL [MODEL ...]"
    command = _command(add, running.forget, "forget", FORGET_HELP, usage)
    _add_model_names(command)
    command.add_argument("--url", help=f"the running proxy ({URL_DEFAULT})")
    command = _command(add, running.page, "page", PAGE_HELP, "plimsoll page [--url URL]")
    command.add_argument("--url", help=f"the admin port of the running proxy ({ADMIN_DEFAULT})")
    command = _command(add, running.top, "top", TOP_HELP, "plimsoll top [--once | --json] [--url URL]")
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--once", action="store_true", help="print once, as where the output is no terminal")
    shown.add_argument("--json", action="store_true", help="print once, as JSON")
    command.add_argument("--url", help=f"the admin port of the running proxy ({ADMIN_DEFAULT})")


def _add_check(add: AddParser) -> None:
    command = _command(add, check, "check", CHECK_HELP, "plimsoll check [FOLDER]")
    command.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="default: the rules of the settings, and the settings"
    )

    usage = "plimsoll caller [--keys FOLDER] < FILE"
    command = _command(add, caller, "caller", CALLER_HELP, usage, CALLER_EPILOG)
    add_settings(command, ("keys",))


def _add_trials(add: AddParser) -> None:
    """The commands that need no upstream."""
    command = _command(add, demo, "demo", DEMO_HELP, "plimsoll demo")
    command.add_argument("--serve", action="store_true", help="leave simulator and proxy running")
    usage, lines = "plimsoll simulate [--port PORT] [...]", argparse.RawDescriptionHelpFormatter
    command = _command(add, simulate, "simulate", SIMULATE_HELP, usage, SIMULATED, lines)
    command.add_argument("--host", metavar="ADDRESS", default=LOCAL, help=f"address to listen on (default: {LOCAL})")
    command.add_argument("--port", type=value_of(whole(0, 65535)), default=8081, help="(default: 8081)")
    command.add_argument("--window", type=value_of(tokens), metavar="TOKENS", default=8192, help="(default: 8192)")
    command.add_argument(
        "--provider", metavar="NAME", default="openai-old", help="the provider whose refusals it sends"
    )


def _add_completion(add: AddParser) -> None:
    command = _command(add, completion, "completion", COMPLETION_HELP, "plimsoll completion SHELL", COMPLETION_EPILOG)
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def _add_replay(add: AddParser) -> None:
    """Several ladders, windows and models are compared side by side, in every combination."""
    usage = "plimsoll replay [--json] [--html FILE] [...] FILE ..."
    command = _command(add, replay, "replay", REPLAY_HELP, usage, EPILOG)
    command.add_argument("file", nargs="+", type=Path, metavar="FILE", help=REPLAY_FILES)
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write it as one HTML file")
    command.add_argument(
        "--lines", type=Path, metavar="FILE", help="also write the figures of each request, as JSON Lines"
    )
    command.add_argument("--content", action="store_true", help="show texts of messages in the cuts of the report")
    command.add_argument("--ladder", action="append", dest="ladders", metavar="NAME", help="repeat it to compare")
    command.add_argument(
        "--window",
        action="append",
        type=value_of(tokens),
        metavar="TOKENS",
        help="smaller than the models'; likewise",
    )
    command.add_argument("--model", action="append", metavar="NAME", help="instead of the recorded ones; likewise")
    command.add_argument("--jobs", type=value_of(whole(0)), metavar="N", help="processes (default: one for each core)")
    add_settings(command, (*(field for field in PLAN_SETTINGS if field != "ladder"), *BUDGET_SETTINGS))


def _sentence(help: str) -> str:
    return f"{help[0].upper()}{help[1:]}."


def _formatter(prog: str, form: type[argparse.HelpFormatter] = argparse.HelpFormatter) -> argparse.HelpFormatter:
    return form(prog, max_help_position=32, width=min(get_terminal_size().columns - 2, MAX_HELP_WIDTH))


def serve(arguments: argparse.Namespace) -> int:
    """`plimsoll serve`: serves until it is stopped."""
    try:
        settings = all_settings_of(arguments)
    except ConfigError:
        warn_of_unknown_variables()
        raise
    with ExitStack() as stack:
        folder = Path(stack.enter_context(_folder())) if settings.workers > 1 else None
        from proxy.bootstrap import start

        environ = partial(environment, arguments)
        remarks = (*unknown_variables(environ()), *empty_keys(arguments))
        return start(settings, remarks, folder, partial(all_settings_of, arguments), environ)


def run(arguments: argparse.Namespace) -> int:
    """`plimsoll run`: runs a program behind proxies of its own, and returns its exit code."""
    from proxy.cli.run import run as run_program

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise ConfigError("run needs a program, such as: plimsoll run -- claude")
    settings = settings_of(arguments)
    given = {s.name: text for s in SETTINGS if (text := getattr(arguments, s.field, None)) is not None}
    return run_program(command, settings, load_rules(settings.rules).clients, given, arguments.page)


def _folder() -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="plimsoll-")
    except OSError as error:
        raise ConfigError(f"--workers needs a writable folder for metrics (TMPDIR): {error}") from None


def inspect(arguments: argparse.Namespace) -> int:
    """`plimsoll inspect`: shows the plan for a body. Returns 1 if the body cannot be made to fit."""
    from proxy.services import build

    services = build(replace(settings_of(arguments), redis=None), lambda outcome: None, variables=None)
    services.go_offline()
    given = {name: getattr(arguments, name) for name in ("window", "lorebook", "ladder", "pin", "mode", "caller")}
    headers = [(f"x-plimsoll-{name}".encode(), str(value).encode()) for name, value in given.items() if value]
    if arguments.caller and arguments.caller not in {row.name for row in services.rules.callers.rows}:
        raise ConfigError(f"--caller: callers.toml has no row with the name {arguments.caller!r}")
    try:
        body = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
        api = api_of(body)
        if api is None and raw_fields(body):
            raise ConfigError(f"{arguments.file}: {NO_REQUEST}")
        inspection = asyncio.run(services.inspecting.plan_of(api or usual(), body, headers))
    except OSError as error:
        raise ConfigError(f"{arguments.file}: {error.strerror}") from None
    except ClientError as error:
        raise ConfigError(f"{arguments.file}: {error.message}") from None
    _print_plan(inspection, arguments)
    return 0 if inspection["fits"] else 1


def _print_plan(inspection: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.request or arguments.json:  # as bytes: a body may be invalid UTF-8
        raw = msgspec.json.encode(inspection["request"] if arguments.request else inspection)
        sys.stdout.buffer.write((raw if arguments.request else msgspec.json.format(raw)) + b"\n")
    else:
        from proxy.cli.picture import show

        show(inspection, all=arguments.all)


def replay(arguments: argparse.Namespace) -> int:
    """`plimsoll replay`: a report on recorded requests. Returns 1 if there are none that can be used."""
    from proxy.cli.replay import run

    return run(arguments, settings_of(arguments))


def check(arguments: argparse.Namespace) -> int:
    """`plimsoll check`: prints every problem of rules or settings. Returns 1 if there are any."""
    from proxy.cli.check import run

    return run(arguments.folder, None if arguments.folder else settings_of(arguments))


def caller(arguments: argparse.Namespace) -> int:
    """`plimsoll caller`: prints the hash of each key in standard input."""
    from proxy.cli.caller import run

    return run(all_settings_of(arguments, traces=False).secret)


def demo(arguments: argparse.Namespace) -> int:
    """`plimsoll demo`: runs the simulator and the proxy, and shows how an overlong conversation is fitted."""
    from proxy.cli.demo import run

    return run(stay=arguments.serve)


def completion(arguments: argparse.Namespace) -> int:
    """`plimsoll completion`: prints the script of a shell."""
    print(SHELLS[arguments.shell](commands_of(parser())), end="")
    return 0


def simulate(arguments: argparse.Namespace) -> int:
    """`plimsoll simulate`: serves the simulator."""
    from proxy.apis import error_body
    from proxy.bootstrap import listen, shown
    from proxy.http.server.serve import run
    from proxy.observe.log import event
    from proxy.simulator.app import SimulatorConfig, simulator

    try:
        config = SimulatorConfig(provider=arguments.provider, window=arguments.window)
    except ValueError as error:
        raise ConfigError(f"--provider: {error}") from None
    sockets = listen(arguments.host, arguments.port)
    print(f"plimsoll simulate: http://{shown(sockets[0])}/v1", file=sys.stderr, flush=True)
    run(
        simulator(config), arguments.host, arguments.port, sockets=sockets, settle=0, error_body=error_body, event=event
    )
    return 0
