# Everything a newcomer or a maintainer runs. Each target makes what it needs in .venv first.

PYTHON ?= python3
BIN := .venv/bin
DEMO := build/demo

.PHONY: help demo test setup lint types clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

.venv/bin/python:
	$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --upgrade pip

# -qq: the build tool's remarks about editable installs help nobody; errors are still shown.
.venv/.export: pyproject.toml | .venv/bin/python
	@echo "Installing hmerctl, PyTorch and the exporters into .venv; the first time this takes minutes"
	@$(BIN)/python -m pip install -qq -e '.[export]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	@echo "Installing hmerctl with everything for development into .venv; the first time this takes minutes"
	@$(BIN)/python -m pip install -qq -e '.[dev]'
	@touch $@

setup: .venv/.dev  ## the full developer environment in .venv

demo: .venv/.export  ## recognise, export to ONNX, prove it, measure it, draw one picture
	@BIN=$(BIN) OUT=$(DEMO) bash scripts/demo.sh

test: .venv/.dev  ## the test suite with coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --cov --cov-report=term:skip-covered --cov-report=xml:build/coverage.xml $(ARGS)

lint: .venv/.dev  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The folders are sub-packages of hmerctl by a mapping that mypy does not know: show it the tree as installed. The
# tests' support and the scripts are modules of their own, as they are when they run.
types: .venv/.dev  ## mypy over the package as installed, the tests and the scripts
	rm -rf build/types && mkdir -p build/types/hmerctl build/types/tests
	ln -s $(CURDIR)/hmerctl/* build/types/hmerctl/
	for folder in runtime train export targets; do ln -s $(CURDIR)/$$folder build/types/hmerctl/$$folder; done
	ln -s $(CURDIR)/tests/* build/types/tests/ && rm build/types/tests/support
	ln -s $(CURDIR)/tests/support/*.py $(CURDIR)/scripts/*.py build/types/
	cd build/types && $(CURDIR)/$(BIN)/python -m mypy --config-file $(CURDIR)/pyproject.toml \
		--explicit-package-bases -p hmerctl -p tests $(patsubst scripts/%.py,-m %,$(wildcard scripts/*.py))

clean:  ## remove what was built, not the environment
	rm -rf build dist .coverage .pytest_cache .mypy_cache .ruff_cache
