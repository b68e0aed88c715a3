"""Puts litellm's data (model table, rank files, licence and notice) into the package when it is built.

They come from the wheel that PLIMSOLL_LITELLM_WHEEL names, else from the source tree (a source distribution has them),
else from the litellm of the environment that builds. An editable install needs none: it reads those of its litellm.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WHEEL = "PLIMSOLL_LITELLM_WHEEL"
NEEDED = ["litellm>=1.100"]  # where neither is there: a build from a checkout in an environment of its own


class LiteLLMData(BuildHookInterface[Any]):
    """The hook: hatchling finds the one subclass of its interface in this file."""

    def dependencies(self) -> list[str]:
        """What the environment that builds must have, besides hatchling."""
        return [] if self._source() or self._shipped().is_dir() else NEEDED

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the folder with the data, unless it is in the source tree already."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from deploy.image import DATA, data

        source, folder = self._source(), self._shipped()
        if source:
            self._made = tempfile.TemporaryDirectory()  # removed when the build is over
            folder = Path(self._made.name)
            data(source, str(folder))
        if not folder.is_dir():
            raise RuntimeError(f"there is no litellm to take data from: install it, or name its wheel by {WHEEL}")
        build_data["force_include"][str(folder)] = DATA

    def _shipped(self) -> Path:
        return Path(self.root) / "proxy" / "litellm_data"

    def _source(self) -> str:
        """A wheel of litellm, or the folder of an installed one; empty if there is neither."""
        if named := os.environ.get(WHEEL):
            return named
        spec = importlib.util.find_spec("litellm") if not self._shipped().is_dir() else None
        return next(iter((spec and spec.submodule_search_locations) or ()), "")
