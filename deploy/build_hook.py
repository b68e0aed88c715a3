"""What the build adds to the package: litellm's data, and a README without relative links.

The data (model table, rank files, licence and notice) come from the wheel that PLIMSOLL_LITELLM_WHEEL names, else from
the source tree (a source distribution has them), else from the litellm of the environment that builds. An editable
install needs none: it reads those of its litellm.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

WHEEL = "PLIMSOLL_LITELLM_WHEEL"
REPOSITORY = "PLIMSOLL_REPOSITORY"  # where the source is, if it is published: https://example.com/owner/plimsoll
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)\s]+\)|[^\[\]])*)\]\(([^)\s]+)\)")
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


def for_index(text: str, repository: str = "") -> str:
    """A README as an index page can show it: relative links and pictures lead into the repository; without one links
    are their texts, and there are no pictures."""

    def is_relative(target: str) -> bool:
        return not re.match(r"[a-z]+:|#", target)

    def picture(match: re.Match[str]) -> str:
        if not is_relative(match[2]):
            return match[0]
        return f"![{match[1]}]({repository}/raw/HEAD/{match[2]})" if repository else ""

    def link(match: re.Match[str]) -> str:
        if not is_relative(match[2]):
            return match[0]
        return f"[{match[1]}]({repository}/blob/HEAD/{match[2]})" if repository else match[1]

    return LINK.sub(link, IMAGE.sub(picture, text))


class Readme(MetadataHookInterface):
    """The hook: it gives the package its README, and the URL of its source if there is one."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds both to the metadata."""
        repository = os.environ.get(REPOSITORY, "").rstrip("/")
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, repository)}
        if repository:
            metadata["urls"] = {"Source": repository, "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md"}
