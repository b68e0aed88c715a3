# Every target sets up what it needs. PYTHON names another interpreter (3.11 or newer), ARGS go to the command, JOBS is
# how many processes run tests: many tests only wait, so three are good for two cores. APT=no installs no servers.
PYTHON ?= python3
JOBS ?= 3
APT ?= yes
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help setup run demo test lint conformance bench soak fidelity image image-test release release-check clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1	/'

# Installs a file of pinned packages and names each as it comes; pip alone says nothing, or everything. Each file is
# whole, so pip resolves nothing (--no-deps): with a constraints file on the machine, pip 23.2 refuses pinned extras.
define install
@echo "installing $(1) into .venv"
@{ $(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r $(1) $(2) 2>&1 || echo "pip failed"; } \
	| while read -r line; do case "$$line" in \
	"Collecting "*) line="$${line#* }"; echo "  $${line%% *}";; \
	"Installing collected"*) echo "  writing the files";; \
	ERROR*) echo "$$line";; \
	"pip failed") exit 1;; \
	esac; done
endef

.venv/.run: deploy/requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(call install,deploy/requirements.txt)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/.test: .venv/.run tests/requirements.txt tests/deploy/requirements.txt
	$(call install,tests/requirements.txt)
	$(call install,tests/deploy/requirements.txt,--ignore-requires-python)
	@touch $@

setup: .venv/.run ## make .venv with the command plimsoll in it
	@echo "$(BIN)/plimsoll is ready"

run: .venv/.run ## serve on 127.0.0.1:8080 (PLIMSOLL_UPSTREAM, ... or ARGS="--port 9000")
	$(BIN)/plimsoll serve $(ARGS)

demo: .venv/.run ## a conversation that is too long, directly (400) and through Plimsoll (200)
	$(BIN)/plimsoll demo $(ARGS)

test: .venv/.test ## all tests (ARGS=@tests/quick: those of a minute); servers, chromium and curl are found or installed (APT=no: never), Node (20 or newer) is found; tests without theirs are skipped
	APT=$(APT) sh tests/servers_setup.sh
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/.test ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2

conformance: .venv/.test ## the openai and anthropic packages' own tests, directly and through the proxy (ARGS=path/to/openapi.yml)
	sh tests/conformance/run.sh $(ARGS)

bench: .venv/.test ## how fast it is, beside others (ARGS=--quick)
	$(BIN)/python -m tests.bench $(ARGS)

soak: .venv/.test ## 30 minutes of all kinds of traffic while Redis, upstream and a worker are killed (ARGS="--seconds 120")
	sh tests/servers_setup.sh
	$(BIN)/python -m tests.bench.soak $(ARGS)

# What survives a cut, on recorded conversations (ARGS=path/to/the/data): see tests/bench/README.md.
fidelity: .venv/.test
	$(BIN)/python -m tests.bench.fidelity $(ARGS)

image: ## the container image; make image-test runs it as Kubernetes would
	$(PYTHON) -m tests.deploy.container build

image-test:
	$(PYTHON) -m tests.deploy.container test

release: .venv/.run ## dist/: wheel, source distribution, bill of materials (make release-check: of a clean clone, installed and used)
	$(BIN)/python deploy/release.py build dist

release-check: .venv/.test
	$(BIN)/python deploy/release.py check

clean: ## remove what was made
	rm -rf .venv .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage dist build
