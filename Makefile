# gradveil: `make` explains, `make demo` shows, `make test` checks.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check
EXTRAS := flower,ray,dask,hf,tensorboard,docs,dev

.PHONY: help setup demo test test-long bench lint docs dist dist-smoke dist-check clean

help:
	@echo "make demo   set up, attack a network without a defense and with five; ends with runs/demo/report.html (a few minutes)"
	@echo "make test   set up with all extras and run the tests; GRADVEIL_DATA=DIR with cifar-10-batches-bin/ runs those that need CIFAR-10"
	@echo "make test-long  a few tests of kills and of statistics that take half a minute each"
	@echo "make bench  measure speed side by side with the published procedures; writes runs/bench.json"
	@echo "make lint   ruff, mypy, and import-linter on the declared layers"
	@echo "make docs   the documentation as a site in site/; needs no network, every warning is an error"
	@echo "make dist   a wheel and a source archive in dist/"
	@echo "make dist-smoke  install the wheel into an empty environment and run a tiny audit elsewhere (a minute)"
	@echo "make dist-check  the same, then gradveil demo there (a few minutes)"
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

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet
	@echo "open site/index.html"

dist: $(VENV)/.dev
	rm -rf dist
	$(VENV)/bin/hatchling build
	ls -l dist

# Outside of the clone and without its environment: what somebody gets who installs the wheel.
INSTALLED = here=$$PWD && cd "$$(mktemp -d)" && env -u PYTHONPATH "$$here/dist/check/bin/gradveil"

dist-smoke: dist
	rm -rf dist/check && $(PYTHON) -m venv dist/check
	dist/check/bin/pip --disable-pip-version-check install --quiet -c constraints.txt dist/*.whl
	$(INSTALLED) --version
	$(INSTALLED) audit --model mlp-16 --stages 0 --images 2 --iterations 2 --workers 2 --out audit && ls -l audit/report.html

dist-check: dist-smoke
	$(INSTALLED) demo && ls -l runs/demo/report.html

clean:
	rm -rf $(VENV) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
