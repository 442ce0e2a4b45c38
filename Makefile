.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
SEEDS ?= 2000
BIN := $(VENV)/bin
SERVABLE := $(VENV)/.servable
READY := $(VENV)/.ready
NODE := $(VENV)/node
TYPESCRIPT := 7.0.2
LIBFAKETIME := 3.0.1

unexport PYTHONDONTWRITEBYTECODE # dozens of processes would each compile the same modules again

.PHONY: help setup serve test proof check scripts browser broker pooler proxy units monitor faketime screenshots bench eval read sim chaos mutants constraints clean

help: ## Show what can be done
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make the virtual environment; does nothing when nothing changed

# Two stages in one environment: what serving needs, and what development needs on top of it. The second includes the
# first, and installing the first never removes the second.
$(SERVABLE): pyproject.toml constraints.txt
	@$(call install,server)
	@touch $@

$(READY): pyproject.toml constraints.txt
	@$(call install,dev)
	@touch $(SERVABLE) $@

define install
	echo "Installing Holdfast [$(1)] into $(VENV); the first time this takes a minute or two."; \
	{ test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); } && \
	{ test -x $(BIN)/uv || $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt uv; } && \
	$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]'
endef

serve: $(SERVABLE) ## Serve the page and the API, with workers, on this machine: make serve PORT=7340
	@$(if $(PORT),HOLDFAST_PORT=$(PORT)) exec $(BIN)/holdfast serve

test: setup scripts browser broker pooler proxy units monitor faketime ## Before a commit: check, simulate 300 runs, test everything once
	@$(FRESH) before-commit

proof: setup browser broker pooler proxy units monitor faketime ## After make test: simulate 2,000 runs, test on every database, with every server and browser size
	@$(FRESH) rest-of-the-proof

# Both run with an empty temporary folder and HOME. Every test is in one of the two: tests/support/selection.py decides.
FRESH = UV_CACHE_DIR="$$($(BIN)/uv cache dir)" PIP_CACHE_DIR="$$($(BIN)/python -m pip cache dir)" \
  $(BIN)/python tests/fresh.py $(MAKE) --no-print-directory
PYTEST = $(BIN)/python -m pytest -p tests.support.forks --forks 4

.PHONY: before-commit rest-of-the-proof few
before-commit:
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check few
	$(PYTEST) -m "not proof"

rest-of-the-proof: sim
	$(PYTEST) -m proof

few: setup
	$(BIN)/python -m tests.simulation --seeds 300 --few

check: setup scripts ## Lint, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

scripts: setup ## Check the types of the page's scripts, where Node is
	@if command -v npm > /dev/null; then \
	  test -x $(NODE)/node_modules/.bin/tsc || npm install --silent --no-save --no-package-lock --prefix $(NODE) typescript@$(TYPESCRIPT) && \
	  $(NODE)/node_modules/.bin/tsc --project tsconfig.json && echo "The types of the scripts are right."; \
	else echo "Node is not here, so the types of the scripts are not checked."; fi

browser: ## Install Chromium for the tests of the page, where it is missing and that is possible
	@command -v chromium-headless-shell > /dev/null || { \
	  echo "Installing Chromium for the tests of the page."; \
	  { apt-get update && apt-get install --yes --no-install-recommends chromium-headless-shell; } > /dev/null 2>&1 || \
	  echo "Chromium could not be installed here: the tests of the page are left out, and with CI=true they fail."; }

broker: setup ## Unpack Debian's RabbitMQ for the tests, where it is missing and that is possible
	@test -d $(VENV)/rabbitmq || { \
	  echo "Unpacking RabbitMQ for the tests."; \
	  $(BIN)/python -m tests.support.rabbitmq_package $(VENV)/rabbitmq > /dev/null 2>&1 || \
	  echo "RabbitMQ could not be downloaded here: its tests are left out, and with CI=true they fail."; }

pooler: setup ## Unpack Debian's pgbouncer for the tests, where it is missing and that is possible
	@test -d $(VENV)/pgbouncer || { \
	  echo "Unpacking pgbouncer for the tests."; \
	  $(BIN)/python -m tests.support.pgbouncer_package $(VENV)/pgbouncer > /dev/null 2>&1 || \
	  echo "pgbouncer could not be downloaded here: its tests are left out, and with CI=true they fail."; }

proxy: setup ## Unpack Debian's nginx for the tests, where it is missing and that is possible
	@test -d $(VENV)/nginx || { \
	  echo "Unpacking nginx for the tests."; \
	  $(BIN)/python -m tests.support.nginx_package $(VENV)/nginx > /dev/null 2>&1 || \
	  echo "nginx could not be downloaded here: its tests are left out, and with CI=true they fail."; }

units: setup ## Unpack Debian's systemd for the tests, where it is missing and that is possible
	@test -d $(VENV)/systemd || { \
	  echo "Unpacking systemd for the tests."; \
	  $(BIN)/python -m tests.support.systemd_package $(VENV)/systemd > /dev/null 2>&1 || \
	  echo "systemd could not be downloaded here: its tests are left out, and with CI=true they fail."; }

monitor: setup ## Unpack Debian's Prometheus for the tests, where it is missing and that is possible
	@test -d $(VENV)/prometheus || { \
	  echo "Unpacking Prometheus for the tests."; \
	  $(BIN)/python -m tests.support.prometheus_package $(VENV)/prometheus > /dev/null 2>&1 || \
	  echo "Prometheus could not be downloaded here: its tests are left out, and with CI=true they fail."; }

# Debian's libfaketime is too old: with it and Python 3.11 or later, time.sleep fails.
faketime: setup ## Build libfaketime for the chaos, where it is missing and that is possible
	@test -d $(VENV)/faketime/libfaketime || { \
	  echo "Building libfaketime for the chaos."; \
	  $(BIN)/uv pip install --quiet --no-deps --target $(VENV)/faketime libfaketime==$(LIBFAKETIME) > /dev/null 2>&1 || \
	  echo "libfaketime could not be built here: no clock jumps, and with CI=true their test fails."; }

screenshots: setup browser ## Photograph every page, light and dark, wide and narrow, for the README
	$(BIN)/python -m tests.web.screenshots $(or $(LOCALE),en-GB) $(TO)

sim: setup ## Simulate faults: make sim SEEDS=2000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

chaos: setup broker faketime ## Use and break a real system: make chaos SECONDS=60 SEED=1 DEPLOYMENT=sqlite
	@$(BIN)/python -m tests.chaos --deployment $(or $(DEPLOYMENT),sqlite) --seconds $(or $(SECONDS),60) \
	  $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep "$(KEEP)")

mutants: setup ## Remove each guard in turn; every removal must be caught
	$(BIN)/python -m tests.mutants

bench: setup ## Measure against a bare loop and against peers
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[bench,dev]'
	$(BIN)/python -m bench

eval: setup ## Measure how well a set in BEIR layout is searched: make eval DATA=folder
	@test -n "$(DATA)" || { echo "Name the folder of the set: make eval DATA=folder"; exit 2; }
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m eval "$(DATA)"

read: setup ## Put in every file below a folder and tell what became of each: make read DATA=folder
	@test -n "$(DATA)" || { echo "Name the folder: make read DATA=folder"; exit 2; }
	$(BIN)/python -m eval.files "$(DATA)"

constraints: setup ## Resolve the versions anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-annotate --no-emit-index-url --upgrade pyproject.toml constraints.in --output-file constraints.txt

clean: ## Remove what the commands above made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
