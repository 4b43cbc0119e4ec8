# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.ready-demo
READY := $(VENV)/.ready
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test lint audit types layers unit hostile slow gpu bench docs serve wheel clean
help:            ## this list
	@grep -hE '^[a-z]+: .*##|^[a-z]+:  +##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(DEMO)    ## adapt a small model to corrupted pictures and print the table; a slim install, about a minute of work
	$(BIN)/steep demo

test: lint types layers unit  ## everything that must pass: lint, types, layers, tests

lint: $(READY)   ## ruff: style and format; bandit: what an attacker would look for
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src

audit: $(READY)  ## known holes in the pinned versions; asks a vulnerability service, so it needs the network
	$(BIN)/pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --no-deps --requirement constraints.txt

types: $(READY)  ## mypy --strict on src
	$(BIN)/mypy

layers: $(READY) ## import-linter: an import only points down
	$(BIN)/lint-imports

# bytecode is kept, whatever the environment says: dozens of tests start steep as a program of its own
unit: $(READY)   ## pytest, the default tier
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist worksteal

hostile: $(READY) ## of these, what strangers send and rare models do: odd tensors, hostile pictures and files, a zoo of models
	$(BIN)/pytest -m hostile

slow: $(READY)   ## the tests that take minutes or a package registry
	$(BIN)/pytest -m "slow or network"

gpu: $(READY)    ## the tests that need a CUDA device
	$(BIN)/pytest -m gpu

bench: $(READY)  ## how fast adaptation is on this machine's processor, beside a plain TEA; some minutes
	$(BIN)/python -m benchmarks.speed

docs: $(READY)   ## the generated pages from code and results/, and the documentation site, into site/; strict, offline
	$(BIN)/python -m tools.results_page results --docs docs
	$(BIN)/python docs/generate/fill_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: $(READY)  ## the documentation on http://127.0.0.1:8000, built again when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict

wheel: $(READY)  ## the package as a wheel, into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Exact versions (constraints.txt): torch is pinned, since an unpinned one pulls gigabytes of CUDA libraries.
# The demo needs few packages; everything else adds the rest to the same environment.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) hatchling editables
	$(INSTALL) --no-build-isolation -e ".[demo]"
	touch $(DEMO)

$(READY): $(DEMO)
	$(INSTALL) --no-build-isolation -e ".[dev]"
	touch $(READY)
