"""`plimsoll check`: the problems of a folder of rules, or of the settings, and whom rules by caller match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proxy.bootstrap import certificate_of, check_admin, readable, unmovable
from proxy.config.callers import CallerRules, described, unusable
from proxy.config.doubts import check_upstreams, doubts
from proxy.config.rules import check_rules, load_rules
from proxy.config.settings import Settings
from proxy.errors import ConfigError
from proxy.observe.recording.recording_files import problem_of
from proxy.request.callers import mark_of
from proxy.services import build


def run(named: Path | None, settings: Settings | None) -> int:
    """Prints every problem of the rules folder that is `named`; without one, of the settings' rules and of their folder
    for recordings. Returns 1 if there are any.

    Raises `ConfigError` (exit code 2) if the folder does not exist, or, without one, if settings would stop the start.
    """
    folder = named if settings is None else settings.rules
    if folder is not None and not folder.is_dir():
        source = "" if named else "PLIMSOLL_RULES: "
        raise ConfigError(f"{source}no such folder: {folder}")
    problems = list(check_rules(folder))
    callers = CallerRules() if problems else load_rules(folder).callers
    if settings:
        problems += [*_remarks(settings), *unusable(callers, settings, mark_of(settings.secret))]
    for problem in problems:
        print(problem)
    if problems:
        return 1
    for line in [*(f"note: {remark}" for remark in _check_start(settings)), *described(callers)]:
        print(line)
    print(f"{folder or 'the built-in rules'}: no problems")
    return 0


def _remarks(settings: Settings) -> list[str]:
    """What the start would only remark on, and why nothing could be recorded."""
    problem = "" if settings.record is None else problem_of(settings.record)
    recording = [f"PLIMSOLL_RECORD: {settings.record} {problem}"] if problem else readable(settings)
    return [*doubts(settings), *recording]


def _check_start(settings: Settings | None) -> list[str]:
    """What stands in the way of moves that are allowed. Raises `ConfigError` for settings that the start refuses. It
    sends nothing, and reads no key that rules name."""
    if settings is None:
        return []
    check_upstreams(settings)
    check_admin(settings)
    certificate_of(settings)
    return unmovable(build(replace(settings, record=None), lambda outcome: None, variables=None))
