"""`plimsoll completion SHELL`: a script that completes commands and flags, made from the parser of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from proxy.cli.arguments import CommandParser


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a command: its name, what is said of it, and whether a value follows."""

    name: str
    help: str
    takes_value: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, what is said of it, its flags, and the words that it takes if they are known."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]


def commands_of(parser: CommandParser) -> tuple[Command, ...]:
    """All commands of a parser, in the order of its help."""
    return tuple(
        Command(name, command.description or "", tuple(_flags(command)), tuple(_words(command)))
        for name, command in parser.commands.items()
    )


def _flags(command: CommandParser) -> Iterator[Flag]:
    for action in command.arguments:
        for name in action.option_strings:
            yield Flag(name, (action.help or "").partition(" (default")[0], action.nargs != 0)


def _words(command: CommandParser) -> Iterator[str]:
    for action in command.arguments:
        if not action.option_strings and action.choices:
            yield from action.choices


BASH = """\
# plimsoll completion bash >> ~/.bash_completion
_plimsoll() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} flags="" words="" word
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$cur"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    for word in "${{COMP_WORDS[@]:2:COMP_CWORD-2}}"; do
        if [ "$word" = -- ]; then
            COMPREPLY=($(compgen -c -- "$cur") $(compgen -f -- "$cur"))
            return
        fi
    done
    case "$cur" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")) ;;
    *)
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        [ -n "$words" ] || COMPREPLY=($(compgen -f -- "$cur"))
        ;;
    esac
}}
complete -o filenames -F _plimsoll plimsoll
"""

ZSH = """\
#compdef plimsoll
# plimsoll completion zsh > a file _plimsoll in a folder of $fpath
_plimsoll() {{
    local -a commands
    commands=(
{commands}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case $words[2] in
{cases}
    esac
}}
if [ "$funcstack[1]" = _plimsoll ]; then _plimsoll "$@"; else compdef _plimsoll plimsoll; fi
"""

FISH = """\
# plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish
complete -c plimsoll -n __fish_use_subcommand -f -l version -d 'print the version'
{lines}
"""


def bash(commands: tuple[Command, ...]) -> str:
    """The script for bash."""
    cases = "\n".join(
        f'    {one.name}) flags="{" ".join(flag.name for flag in one.flags)}" words="{" ".join(one.words)}" ;;'
        for one in commands
    )
    return BASH.format(commands=" ".join(one.name for one in commands), cases=cases)


def zsh(commands: tuple[Command, ...]) -> str:
    """The script for zsh."""
    named = "\n".join(f"        {_quoted(f'{one.name}:{one.help}')}" for one in commands)
    return ZSH.format(commands=named, cases="\n".join(map(_zsh_case, commands)))


def _zsh_case(command: Command) -> str:
    rows = [_quoted(f"{flag.name}[{_plain(flag.help)}]{':value:_files' * flag.takes_value}") for flag in command.flags]
    last = f"*:word:({' '.join(command.words)})" if command.words else "*:file:_files"
    rows.append(_quoted("*::program:_normal" if command.name == "run" else last))
    return f"    {command.name})\n        shift words; (( CURRENT-- ))\n        _arguments -s {' '.join(rows)} ;;"


def _plain(text: str) -> str:
    """A text without what _arguments reads as its own."""
    return text.replace("[", "(").replace("]", ")").replace(":", " -")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish(commands: tuple[Command, ...]) -> str:
    """The script for fish."""
    return FISH.format(lines="\n".join(line for one in commands for line in _fish_lines(one)))


def _fish_lines(command: Command) -> Iterator[str]:
    yield f"complete -c plimsoll -n __fish_use_subcommand -f -a {command.name} -d {_fish_quoted(command.help)}"
    here = f"complete -c plimsoll -n '__fish_seen_subcommand_from {command.name}'"
    for flag in command.flags:
        long = flag.name.startswith("--")
        name = f"-l {flag.name[2:]}" if long else f"-s {flag.name[1:]}"
        yield f"{here} {name}{' -r' * flag.takes_value} -d {_fish_quoted(flag.help)}"
    if command.words:
        yield f"{here} -f -a {_fish_quoted(' '.join(command.words))}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Mapping[str, Callable[[tuple[Command, ...]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
