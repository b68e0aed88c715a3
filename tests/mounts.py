"""Folders as Kubernetes mounts them."""

from __future__ import annotations

import contextlib
from pathlib import Path


class Mount:
    """A folder as Kubernetes mounts a config map or a secret: a new version appears by the swap of one link."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder, self._version = folder, 0
        folder.mkdir()
        self.change(**files)

    def change(self, **files: str) -> None:
        self._version += 1
        data = self.folder / f"..{self._version}"
        data.mkdir()
        for name, text in files.items():
            (data / name).write_text(text)
            with contextlib.suppress(FileExistsError):
                (self.folder / name).symlink_to(Path("..data") / name)
        (self.folder / "..new").symlink_to(data.name)
        (self.folder / "..new").rename(self.folder / "..data")
