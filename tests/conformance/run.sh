#!/bin/sh
# Runs the openai package's own tests against a mock of OpenAI's API, straight and through the proxy, and compares each
# test's result and every request that reached the upstream. The first argument is OpenAI's specification as YAML.
set -eu
cd "$(dirname "$0")/../.."
here=tests/conformance
spec=${1:-../shared/data/openai_openapi.yml}
version=3.3.1
work=.bench/conformance
python=.venv/bin/python

say() { echo "conformance: $*" >&2; }
[ -f "$spec" ] || { say "there is no file $spec; name OpenAI's specification: make conformance ARGS=path/to/openapi.yml"; exit 2; }
command -v npm >/dev/null 2>&1 || { say "npm is needed for the mock upstream (@stdy/cli)"; exit 2; }
spec=$(cd "$(dirname "$spec")" && pwd)/$(basename "$spec")
mkdir -p "$work"

if ! cmp -s "$here/requirements.txt" "$work/requirements.txt"; then
	say "installing the client and what its tests need"
	rm -rf "$work/venv" "$work/openai-$version"
	$python -m venv "$work/venv"
	"$work/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$here/requirements.txt"
	# its tests are in the source distribution alone
	{ echo "openai==$version \\"; sed -n "/^openai.*==$version/,/^[a-z]/p" "$here/requirements.txt" | grep -- --hash; } | sed '$ s/ \\$//' >"$work/source.txt"
	"$work/venv/bin/python" -m pip download -q --disable-pip-version-check --require-hashes --no-deps \
		--no-binary :all: --no-build-isolation -d "$work" -r "$work/source.txt"
	tar -xzf "$work/openai-$version.tar.gz" -C "$work"
	cp "$here/requirements.txt" "$work/requirements.txt"
fi
if ! cmp -s "$here/package.json" "$work/package.json" || [ ! -x "$work/node_modules/.bin/steady" ]; then
	say "installing the mock"
	cp "$here/package.json" "$work/package.json"
	(cd "$work" && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null)
fi

free() { $python -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
answers() { $python -c 'import sys, time, urllib.request
for _ in range(600):
    try: urllib.request.urlopen(sys.argv[1], timeout=5); sys.exit(0)
    except OSError: time.sleep(0.1)
sys.exit(1)' "$1" || { say "nothing answers at $1"; exit 1; }; }
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done' EXIT INT TERM

mock=$(free)
"$work/node_modules/.bin/steady" --host 127.0.0.1 -p "$mock" --validator-query-array-format=brackets \
	--validator-form-array-format=brackets --validator-query-object-format=brackets \
	--validator-form-object-format=brackets "$spec" >"$work/mock.log" 2>&1 &
pids="$pids $!"
answers "http://127.0.0.1:$mock/_x-steady/health"

for way in straight through; do
	rm -f "$work/port"
	$python -m tests.conformance.noting "$mock" "$work/$way.jsonl" >"$work/port" &
	noting=$!
	pids="$pids $noting"
	while [ ! -s "$work/port" ]; do sleep 0.1; done
	url=http://127.0.0.1:$(cat "$work/port")
	proxy=
	if [ "$way" = through ]; then
		port=$(free)
		$python -m proxy.cli serve --port "$port" --upstream "$url" --log json >"$work/proxy.jsonl" 2>"$work/proxy.log" &
		proxy=$!
		pids="$pids $proxy"
		answers "http://127.0.0.1:$port/readyz"
		url=http://127.0.0.1:$port/v1
	fi
	say "running the tests of openai $version $way"
	(cd "$work/openai-$version" && TEST_API_BASE_URL=$url ../venv/bin/python -m pytest tests/api_resources -q -n 2 \
		-p no:cacheprovider --junitxml="../$way.xml" >"../$way.log" 2>&1) || say "some tests fail $way (see $work/$way.log)"
	for pid in $proxy $noting; do
		kill "$pid"
		wait "$pid" || true
	done
done
$python -m tests.conformance.compare "$work"
