"""A simulated upstream, as strict as the real ones, for the demo and for tests. It shares no parser with the proxy.

Each package here is one API; this module finds them. To add an API, add its package.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from proxy.simulator.api import Api


@cache
def apis() -> tuple[Api, ...]:
    """Every API: the `API` of each package here, in the order of the packages' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return tuple(importlib.import_module(f"{__name__}.{name}").API for name in names)
