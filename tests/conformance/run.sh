#!/bin/sh
# Runs the own tests of the openai and the anthropic package against mocks of their APIs, straight and through the
# proxy, and compares each test's result and every request that reached the upstream. Arguments: `openai`, `anthropic`
# (else both), and OpenAI's specification as YAML. Anthropic's mock is made from the package itself.
set -eu
cd "$(dirname "$0")/../.."
here=tests/conformance
spec=
suites=
python=.venv/bin/python

say() { echo "conformance: $*" >&2; }
for argument; do
	case "$argument" in
	openai | anthropic) suites="$suites $argument" ;;
	*) spec=$argument ;;
	esac
done

# A venv with a package and what its tests need, and its source distribution, in which alone its tests are.
install_suite() { # name, version
	work=.bench/conformance/$1
	mkdir -p "$work"
	cmp -s "$here/$1.txt" "$work/requirements.txt" && return
	say "installing $1 and what its tests need"
	rm -rf "$work/venv" "$work/$1-$2"
	$python -m venv "$work/venv"
	"$work/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$here/$1.txt"
	{ echo "$1==$2 \\"; sed -n "/^$1.*==$2/,/^[a-z]/p" "$here/$1.txt" | grep -- --hash; } | sed '$ s/ \\$//' >"$work/source.txt"
	"$work/venv/bin/python" -m pip download -q --disable-pip-version-check --require-hashes --no-deps \
		--no-binary :all: --no-build-isolation -d "$work" -r "$work/source.txt" ||
		{ say "the source distribution of $1 $2, in which its tests are, cannot be had"; exit 2; }
	tar -xzf "$work/$1-$2.tar.gz" -C "$work"
	[ -d "$work/$1-$2/tests/api_resources" ] || { say "$1 $2 comes without its tests"; exit 2; }
	cp "$here/$1.txt" "$work/requirements.txt"
}

free() { $python -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
answers() { $python -c 'import sys, time, urllib.error, urllib.request
for _ in range(600):
    try: urllib.request.urlopen(sys.argv[1], timeout=5); sys.exit(0)
    except urllib.error.HTTPError: sys.exit(0)
    except OSError: time.sleep(0.1)
sys.exit(1)' "$1" || { say "nothing answers at $1"; exit 1; }; }
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done' EXIT INT TERM

# The tests of a package both ways, and what differs.
run_suite() { # name, version, the tests that must have run at least, what a base URL ends with
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
			mkdir -p "$work/rules" # every model is known, so that the proxy asks for no list of its own
			printf '[[window]]\nmodel = "*"\ntokens = 1_000_000\n' >"$work/rules/windows.toml"
			$python -m proxy.cli serve --port "$port" --upstream "$url$4" --rules "$work/rules" --log json >"$work/proxy.jsonl" 2>"$work/proxy.log" &
			proxy=$!
			pids="$pids $proxy"
			answers "http://127.0.0.1:$port/readyz"
			url=http://127.0.0.1:$port$5
		fi
		say "running the tests of $1 $2 $way"
		(cd "$work/$1-$2" && TEST_API_BASE_URL=$url ../venv/bin/python -m pytest tests/api_resources -q -n 2 \
			-p no:cacheprovider --junitxml="../$way.xml" >"../$way.log" 2>&1) || say "some tests fail $way (see $work/$way.log)"
		for pid in $proxy $noting; do
			kill "$pid"
			wait "$pid" || true
		done
	done
	$python -m tests.conformance.compare "$work" "$3"
}

openai() {
	[ -f "$spec" ] || { say "OpenAI's specification is missing${spec:+ at $spec}; name it: make conformance ARGS=path/to/openapi.yml"; exit 2; }
	command -v npm >/dev/null 2>&1 || { say "npm is needed for the mock upstream (@stdy/cli)"; exit 2; }
	spec=$(cd "$(dirname "$spec")" && pwd)/$(basename "$spec")
	install_suite openai 3.3.1
	if ! cmp -s "$here/package.json" "$work/package.json" || [ ! -x "$work/node_modules/.bin/steady" ]; then
		say "installing the mock"
		cp "$here/package.json" "$work/package.json"
		(cd "$work" && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null)
	fi
	mock=$(free)
	"$work/node_modules/.bin/steady" --host 127.0.0.1 -p "$mock" --validator-query-array-format=brackets \
		--validator-form-array-format=brackets --validator-query-object-format=brackets \
		--validator-form-object-format=brackets "$spec" >"$work/mock.log" 2>&1 &
	pids="$pids $!"
	answers "http://127.0.0.1:$mock/_x-steady/health"
	run_suite openai 3.3.1 6000 "" /v1
}

anthropic() {
	install_suite anthropic 2.12.0
	mock=$(free)
	"$work/venv/bin/python" "$here/anthropic_mock.py" "$work/anthropic-2.12.0/api.md" "$mock" >"$work/mock.log" 2>&1 &
	pids="$pids $!"
	answers "http://127.0.0.1:$mock/"
	run_suite anthropic 2.12.0 5000 /v1 ""
}

if [ -z "$suites" ]; then # each in a shell of its own: what one lacks does not end the other
	failed=0
	for suite in openai anthropic; do sh "$here/run.sh" "$suite" "$spec" || failed=$?; done
	exit $failed
fi
for suite in $suites; do $suite; done
