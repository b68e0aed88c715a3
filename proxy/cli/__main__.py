"""`python -m proxy.cli`: the command plimsoll."""

from proxy.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
