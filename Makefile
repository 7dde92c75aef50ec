# Everything a checkout needs: Python 3.11 or newer and make. `make help` lists the commands.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UNFINISHED := $(VENV)/.unfinished

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow lint check bench clean

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile | expand -t 14

setup: $(READY) ## create .venv and install the pinned versions of constraints.txt

# The mark is set only once all is installed; an install that was cut short leaves the other mark, and starts over.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.11" >&2; exit 2; }
	@test ! -e $(UNFINISHED) && $(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@mv -f $(READY) $(UNFINISHED) 2> /dev/null || touch $(UNFINISHED)
	@echo "installing the pinned versions of constraints.txt into $(VENV) (some minutes the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@mv $(UNFINISHED) $(READY) && touch $(READY)

demo: $(READY) ## run the main job on the data that ships with the package, into runs/demo
	@rm -rf runs/demo
	$(BIN)/equipoise run demo --out runs/demo

test: $(READY) ## run the tests that are quick
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

slow: $(READY) ## run the tests that take long: planted faults, published figures, the built wheel
	$(BIN)/python -m pytest -q -n 2 -m slow

lint: $(READY) ## ruff, mypy --strict and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## lint, then test: run it before you commit

bench: $(READY) ## measure the engine, then the other frameworks (each in an environment of its own)
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/curvature.py
	$(BIN)/python benchmarks/aggregation.py
	$(BIN)/python benchmarks/peers.py

clean: ## remove all that is built: .venv, the benchmarks' environments, caches
	rm -rf $(VENV) benchmarks/.venvs build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
