"""Rules by which the upstreams of tests check keys, as the known providers do."""

from __future__ import annotations

from pathlib import Path


def checking_keys(folder: Path, host: str = "127.0.0.1", probe: str = "") -> str:
    """A rules folder by which upstreams at a host check keys: a key that they answer is accepted. `probe`: the path by
    which they are asked for a key."""
    asked = f'probe = "{probe}"\n' if probe else ""
    (folder / "key_checks.toml").write_text(f'[[key_check]]\nname = "here"\nhosts = ["{host}"]\n{asked}', "utf-8")
    return str(folder)
