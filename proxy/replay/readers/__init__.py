"""The formats of recordings, one module each; this module finds them. To add a format, add its module."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from proxy.replay.recorded import Reader


@cache
def readers() -> tuple[Reader, ...]:
    """The `READER` of each module here, in the order in which they are asked whether they recognise an entry."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found: list[Reader] = [importlib.import_module(f"{__name__}.{name}").READER for name in names]
    return tuple(sorted(found, key=lambda reader: (reader.rank, reader.name)))
