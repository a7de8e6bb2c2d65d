# gradveil: `make` explains, `make demo` shows, `make test` checks.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check
EXTRAS := flower,dp,ray,dask,hf,tensorboard,dev

.PHONY: help setup demo test test-long bench lint clean

help:
	@echo "make demo   set up, search a policy, audit a network with and without it; ends with runs/demo/report.html (a few minutes)"
	@echo "make test   set up with all extras and run the tests; GRADVEIL_DATA=DIR with cifar-10-batches-bin/ runs those that need CIFAR-10"
	@echo "make test-long  a few tests of kills and of statistics that take half a minute each"
	@echo "make bench  measure speed side by side with the published procedures; writes runs/bench.json"
	@echo "make lint   ruff, mypy, and import-linter on the declared layers"
	@echo "make setup  the environment in $(VENV) only"
	@echo "make clean  remove the environment and caches; runs/ stays"

# A stamp per kind of environment: made once, made again only when what it is made from changes.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gradveil needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@ $(VENV)/.core

setup: $(VENV)/.core

demo: $(VENV)/.core
	$(VENV)/bin/gradveil demo

test: $(VENV)/.dev
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal -m 'not long'
	$(VENV)/bin/python -m pytest -n 2 tests/test_devices.py

test-long: $(VENV)/.dev
	$(VENV)/bin/python -m pytest -n 2 -m long

bench: $(VENV)/.dev
	$(VENV)/bin/python -m bench

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --cache-dir .import_linter_cache

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
