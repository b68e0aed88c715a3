"""What the proxy knows of a kind of server: what the APIs that it speaks have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Header = tuple[bytes, bytes]
Entry = dict[str, Any]
KEY_HEADERS = frozenset((b"authorization", b"api-key"))


@dataclass(frozen=True, slots=True, eq=False)
class ModelList:
    """How a kind of server lists its models (`GET /v1/models`), in a list with `data`.

    `target`, `headers`: how we ask for it. `entry(name, owner)`: the fields that clients require of an entry.
    `window_keys`, `output_keys`: where clients look for a model's window and for its longest reply, in tokens.
    `frame(names)`: the fields of the list beside its entries: those that follow from the names of these, and those that
    it has unless it says otherwise.
    """

    target: bytes
    entry: Callable[[str, str], Entry]
    window_keys: tuple[str, ...]
    output_keys: tuple[str, ...]
    frame: Callable[[Sequence[str]], tuple[Entry, Entry]]
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LoadedList:
    """How a kind of server tells with which windows it has loaded its models: GET `path`.

    `windows_in(body)`: the windows in an answer, in tokens, by the models' full names. It raises `MsgspecError`.
    `full_name(model)`: the full name of a model.
    """

    path: bytes
    windows_in: Callable[[bytes], dict[str, int]]
    full_name: Callable[[str], str]


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """A kind of server, by the name that `api` of a row of upstreams.toml has for it.

    `roots`: what the paths begin with that only such servers have; without any, it has all that are no other's.
    `paths`: all paths that it has, if these are few. `beside`: its paths stand beside the `/v1` of a base URL, not
    under it. `asked_at`: the path at which the proxy itself asks such a server, in the API of that path; empty: it asks
    none. `mark`: the header with which clients show that they are written for such servers. `keys`: the headers in
    which it reads the key of its caller. `prompt_cache`: the row of `proxy.fit.money.CACHES` that says how most of its
    providers cache prompts; empty: as most do. `lists`: how the paths of its lists of models end. `models`, `loaded`:
    how it lists its models, and those that it has loaded; None: not, or in a way that is not read. `words`: words in
    its paths, besides those of its APIs, that logs may show. `labels`: the label in metrics of paths that are not
    fitted, by their first segment, if that is not the segment.
    """

    name: str
    roots: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    beside: bool = False
    asked_at: str = ""
    mark: bytes = b""
    keys: frozenset[bytes] = KEY_HEADERS
    prompt_cache: str = ""
    lists: tuple[str, ...] = ("/models",)
    models: ModelList | None = None
    loaded: LoadedList | None = None
    words: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
