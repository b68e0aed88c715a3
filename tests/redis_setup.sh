#!/bin/sh
# Finds a redis-server for the tests, installs one where the system's package manager can, or says what is skipped.
set -u
command -v redis-server >/dev/null 2>&1 && exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server; } >/dev/null 2>&1
fi
command -v redis-server >/dev/null 2>&1 && exit 0
echo "redis-server is not installed and could not be installed here: the tests that need a real Redis are skipped" >&2
[ "${CI:-}" != true ] || exit 1
exit 0
