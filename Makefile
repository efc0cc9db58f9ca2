# Needs Python 3.10 or newer and make, nothing else (on Debian and Ubuntu also python3-venv).
# Everything is installed into .venv, pinned by constraints.txt; a second call finds it there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# three workers on two cores: half of a run is waiting
PYTEST := $(BIN)/python -m pytest
BESIDE := -n 3 --dist loadscope --no-loadscope-reorder
# What fails is run once more by itself: what fails then too, fails the run. Three at a time keep a machine of two cores
# so busy that a real process may come too late; the summary of the first run still names it.
RUN_TESTS = $(PYTEST) $(BESIDE) $(1) || { [ $$? -eq 1 ] && echo "--- the failed ones again, by themselves" \
	  && $(PYTEST) --last-failed --last-failed-no-failures none $(1); }
TESTS = -m "not slow"
FRONTEND := tsnb/panel/frontend
PANEL := $(wildcard hatch_build.py $(FRONTEND)/package*.json $(FRONTEND)/src/*)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# images for containers set it: then each process of a test compiles all of tsnb anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all lab check format bench docs dist soak clean
.DELETE_ON_ERROR:

help:
	@echo "make demo     run the quickstart notebook without a browser and print what sharing gave on this machine"
	@echo "make lab      open the quickstart in JupyterLab"
	@echo "make test     run the tests but for the slow ones (TESTS=\"tests/wire -x\" runs a part instead)"
	@echo "make test-all the slow ones too: JupyterLab in a browser, a Ray cluster, other packages, whole notebooks"
	@echo "make check    formatting, lint, types, layers, prose"
	@echo "make format   put the formatting right"
	@echo "make bench    plain loader, separate loaders, tensorsocket and tsnb, side by side"
	@echo "make docs     the documentation as a site, in artifacts/site"
	@echo "make dist     build the wheel and the sdist from a clean tree, and check them (DIST=\"--python python3.12\")"
	@echo "make soak     a random fault every few seconds, every sample checked (SOAK=\"--minutes 30 --consumers 8\")"
	@echo "make clean    remove the environment and everything built"

demo: $(VENV)/demo.stamp
	$(BIN)/python notebooks/demo.py

test: $(VENV)/test.stamp $(VENV)/litdata.stamp
	@./.ci/chromium $(BIN)
	$(call RUN_TESTS,$(TESTS))

test-all: test
	$(call RUN_TESTS,-m slow)

lab: $(VENV)/lab.stamp
	$(BIN)/jupyter lab notebooks/01_quickstart.ipynb

check: $(VENV)/check.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/nbstripout --verify notebooks/*.ipynb
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house.prose

format: $(VENV)/check.stamp
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/nbstripout notebooks/*.ipynb

bench: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks.sharing $(BENCH)

soak: $(VENV)/test.stamp
	$(BIN)/python -m tests.soak $(SOAK)

docs: $(VENV)/docs.stamp
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs artifacts/site
	@echo "artifacts/site/index.html"

dist: $(VENV)/dist.stamp
	$(BIN)/python -m release.dist $(DIST)

clean:
	rm -rf $(VENV) build dist artifacts tsnb/panel/static $(FRONTEND)/node_modules
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp an extra: the package itself in editable form (which also bundles the panel), and what the extra asks for.
# `check` asks for all that `test` does, as it looks at the tests too.
$(VENV)/%.stamp: pyproject.toml constraints.txt $(PANEL) | $(BIN)/python
	@echo "Installing what '$*' needs into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$*]"
	@touch $@ $(if $(filter check,$*),$(VENV)/test.stamp)

# LitData asks for torchvision and an older python-dateutil, which do not go with our pins; local data needs neither.
$(VENV)/litdata.stamp: tests/ecosystem/litdata.txt $(VENV)/test.stamp
	@$(BIN)/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "tsnb needs Python 3.10 or newer; say which one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "No venv here. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
