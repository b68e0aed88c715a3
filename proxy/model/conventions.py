"""How agents and their tools write: names of arguments, commands that print files, words of stubs. Data of the rules.

The values come from `rules/tools.toml`. This module decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Signs:
    """How one language says something. A clause without any of the `words` (in lower case; of scripts without blanks,
    parts of words) is not read further. `patterns`, of which one must be found; one with `^` may stand behind `start`.
    """

    words: tuple[str, ...]
    patterns: tuple[str, ...]
    start: str = ""


@dataclass(frozen=True, slots=True)
class Conventions:
    """The rows of `rules/tools.toml`; all are compared without case.

    Names of arguments. `paths`: of what is read. `offsets`, `limits`, `pages`, `ends`, `ranges`: of the part that is
    read. `commands`: of a shell command. `free`: of what says nothing of what is read, such as an id of the request or
    an explanation. `changes`: of a new text, or of the text that is replaced.

    Commands. `readers`: programs that print a file. `writers`: programs that change the files that they name.

    Texts. `stubs`: phrases by which a result says that its text stands in an earlier one. `failures`: how the result of
    a call that failed begins. `sent_by_client`: how a user message begins that nobody typed.

    By language, `orders`: signs of what holds for later answers; `reversals`: signs of what is otherwise from now on.
    """

    paths: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    sent_by_client: tuple[str, ...] = ()
    orders: tuple[Signs, ...] = field(default=(), hash=False)  # long; `==` compares it
    reversals: tuple[Signs, ...] = field(default=(), hash=False)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of arguments that say what is read, and which part of it."""
        return (*self.paths, *self.offsets, *self.limits, *self.pages, *self.ends, *self.ranges)


KINDS = tuple(each.name for each in fields(Conventions))
NO_CONVENTIONS = Conventions()
