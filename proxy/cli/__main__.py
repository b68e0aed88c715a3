"""Runs the command line: `python -m proxy.cli` is `plimsoll`."""

from proxy.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
