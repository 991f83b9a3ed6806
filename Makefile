# Every target makes or refreshes .venv first; nothing else has to be installed or running.
# Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
ifneq ($(origin PYTHON),file)
SAME_PYTHON := --same-python
endif
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test regressions soak lint bench docs clean

help: ## Say what there is
	@echo "make TARGET, where TARGET is one of:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make or refresh .venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || { \
	  echo "'$(PYTHON)' is not Python 3.11 or newer. Name one: make PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	}
	@$(PYTHON) .ci/venv.py $(SAME_PYTHON)

demo: setup ## Run the example project end to end, from an upload to the run history
	@$(BIN)/python -m example_project.demo

serve: setup ## Run the example's web server and workers until Ctrl-C
	@$(BIN)/python -m example_project.demo --serve

test: setup ## Run the tests on SQLite and on PostgreSQL
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run
	DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python -m django makemigrations --check --dry-run
	$(BIN)/python .ci/run_tests.py $(TESTS)

regressions: setup ## Bring each weakness of the original back, and see its test fail (REGRESSIONS="P01 P12")
	@$(BIN)/python -m tests.regressions $(REGRESSIONS)

soak: setup ## Kill workers under load, then take steps at the door (SOAK="--kills 20 --steps 2000")
	$(BIN)/python -m tests.chaos $(SOAK)

lint: setup ## Check style, types and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Measure on this machine and print one table, 15 to 20 minutes
	@$(BIN)/python -m benchmarks $(BENCH)

docs: setup ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky -b html docs docs/_build/html

clean: ## Remove what the other targets made
	rm -rf .venv .venv.lock docs/_build build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
