"""The command line: plimsoll serve | inspect | models | check | demo | simulate; it only reads arguments and shows."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proxy import __version__
from proxy.config.rules import check_rules, load_rules
from proxy.config.settings import SETTINGS, Settings, misspelt, read_settings
from proxy.errors import ClientError, ConfigError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; a wrong setting or rules file ends it with its text and exit code 2."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        return code
    except ConfigError as error:
        print(f"plimsoll: {error}", file=sys.stderr)
        return 2
    except (BrokenPipeError, KeyboardInterrupt):
        return 130


def parser() -> argparse.ArgumentParser:
    """All commands with their flags; each setting is a flag of the same name."""
    top = argparse.ArgumentParser(prog="plimsoll", description="Makes every request fit its model's context window.")
    top.add_argument("--version", action="version", version=f"plimsoll {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    serving = commands.add_parser("serve", help="serve as a reverse proxy")
    serving.set_defaults(run=serve)
    looking = commands.add_parser("inspect", help="show what would be done with a request's body")
    looking.set_defaults(run=inspect)
    looking.add_argument("file", help="a file with the JSON body of a chat request; - reads standard input")
    looking.add_argument("--json", action="store_true", help="print JSON instead of a picture")
    looking.add_argument("--window", help="tokens, as the header x-plimsoll-window")
    looking.add_argument("--request", action="store_true", help="print only the body as it would be sent")
    models = commands.add_parser("models", help="show what is known of models, and from where")
    models.set_defaults(run=show_models)
    models.add_argument("model", nargs="+")
    models.add_argument("--json", action="store_true", help="print JSON instead of a table")
    checking = commands.add_parser("check", help="check a folder of rules")
    checking.set_defaults(run=check)
    checking.add_argument("folder", nargs="?", type=Path, help="PLIMSOLL_RULES where none is given")
    showing = commands.add_parser("demo", help="an overlong conversation, straight and through the proxy")
    showing.set_defaults(run=demo)
    showing.add_argument("--serve", action="store_true", help="leave simulator and proxy running")
    simulating = commands.add_parser("simulate", help="serve the simulator: an upstream as strict as the real ones")
    simulating.set_defaults(run=simulate)
    simulating.add_argument("--port", type=int, default=8081)
    for command in (serving, looking, models, checking):
        for setting in SETTINGS:
            command.add_argument(setting.flag, dest=setting.field, metavar=setting.name, help=setting.help)
    return top


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Environment and flags as settings; says so where a variable looks misspelt."""
    for line in misspelt(os.environ):
        print(f"plimsoll: {line}", file=sys.stderr)
    return read_settings(os.environ, {s.field: getattr(arguments, s.field, None) for s in SETTINGS})


def serve(arguments: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    from proxy.serve.app import build, create_admin, create_app
    from proxy.serve.server import run

    settings = settings_of(arguments)
    house = build(settings)
    admin = None if settings.admin_port is None else create_admin(house)
    print(f"plimsoll {__version__}: http://{settings.host}:{settings.port}/v1 -> {settings.upstream}", file=sys.stderr)
    run(
        create_app(house),
        settings.host,
        settings.port,
        admin=admin,
        admin_port=settings.admin_port,
        drain=settings.drain,
    )
    return 0


def inspect(arguments: argparse.Namespace) -> int:
    """Shows the plan for a body; sends nothing."""
    from proxy.serve.app import build

    house = build(settings_of(arguments), lambda outcome: None)
    house.gateway.planner.knowledge.offline = True
    headers = [(b"x-plimsoll-window", arguments.window.encode())] if arguments.window else []
    if arguments.ladder:
        headers.append((b"x-plimsoll-ladder", arguments.ladder.encode()))
    try:
        body = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
        told = asyncio.run(house.gateway.inspected(body, headers))
    except OSError as error:
        raise ConfigError(f"{arguments.file}: {error.strerror}") from None
    except ClientError as error:
        raise ConfigError(error.message) from None
    if arguments.request:
        sys.stdout.buffer.write(bytes(msgspec.json.encode(told["request"])) + b"\n")
    elif arguments.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(told)) + b"\n")
    else:
        from proxy.picture import show

        show(json.loads(msgspec.json.encode(told)))
    return 0


def show_models(arguments: argparse.Namespace) -> int:
    """What we know of models: window, bounds, where we know it from, how it is counted."""
    from proxy.config.windows import load_windows
    from proxy.knowing import known, table

    windows = load_windows(load_rules(settings_of(arguments).rules).windows)
    rows = [known(model, windows) for model in arguments.model]
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        table(rows)
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Every problem of a folder of rules; exit code 1 where there are any."""
    folder = arguments.folder or settings_of(arguments).rules
    problems = check_rules(folder)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{folder or 'the built-in rules'}: no problems")
    return 1 if problems else 0


def demo(arguments: argparse.Namespace) -> int:
    """Starts the simulator and the proxy and shows what becomes of an overlong conversation."""
    from proxy.demo import run

    return run(stay=arguments.serve)


def simulate(arguments: argparse.Namespace) -> int:
    """Serves the simulator, for the demo and for tests of one's own."""
    import uvicorn

    from proxy.simulator import SimulatorConfig, simulator

    uvicorn.run(simulator(SimulatorConfig()), host="127.0.0.1", port=arguments.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
