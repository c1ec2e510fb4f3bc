# Two commands for a newcomer: `make run` and `make test`. Both set up what they need in .venv and nowhere else.
# `make test ROOM=records` runs the tests of one folder below tests/; ALL=1 includes those marked slow.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt

.PHONY: run test lint docs notebooks clean
.DEFAULT_GOAL := run

run: $(VENV)/.run
	@$(BIN)/levelbench run 'digits[framework=numpy]' 'digits[framework=torch]' -n 5

test: $(VENV)/.test
	@$(BIN)/pytest -n 2 --dist loadfile $(if $(ALL),,-m 'not slow') $(if $(ROOM),tests/$(ROOM))

lint: $(VENV)/.test
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

# First the committed pages that are made from the sources, then the site: build/site/index.html.
docs: $(VENV)/.docs
	@$(BIN)/levelbench lint --docs docs/reference
	@$(BIN)/python -m tests.claims.matrix
	@$(BIN)/python benchmarks/evidence.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Executes the notebooks anew, on this machine, and keeps what they show.
notebooks: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) --group notebooks
	$(BIN)/jupyter execute --inplace docs/notebooks/*.ipynb

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "levelbench needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'

# An editable install, so that a changed source needs no new set-up; only changed dependencies do.
$(VENV)/.run: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[torch,plot]'
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) --group dev
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) --group docs
	@touch $@
