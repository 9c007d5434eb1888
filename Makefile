# Everything a newcomer needs: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test soak bench lint format typecheck system-packages clean

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 28

$(STAMP): pyproject.toml constraints.txt
	@echo "== Creating the environment in $(VENV) and installing kvshelf with its development tools (a minute or two)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kvshelf needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## Start the service on loopback, replay the shipped agent trace against it, print the hit table.
	@echo "== Running the demo: a service with embedded defaults, and a generated agent trace replayed against it"
	$(BIN)/kvshelf demo

test: $(STAMP) system-packages lint  ## Run the linters and the whole test suite.
	@echo "== Running the whole test suite (five to eight minutes on two cores)"
	$(BIN)/python -m pytest -n auto --dist loadfile

soak: $(STAMP) system-packages  ## Try every fault at its full count: 1,000 simulated seeds and the like (some 70 minutes).
	$(BIN)/python -m tests.load.soak

bench: $(STAMP) system-packages  ## Measure every path of bytes against the machine's own limits; writes bench.json.
	@echo "== Measuring (about 8 minutes; leave the machine alone meanwhile)"
	$(BIN)/python -m tests.load.bench

system-packages:
	@bash tests/support/install_system_packages.sh

lint: $(STAMP)  ## Run ruff, mypy --strict and the test that holds the repository itself to its rules.
	@echo "== Checking style, types and the repository's own rules"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py

proto: $(STAMP)  ## Generate the Python of the gRPC face from its .proto.
	$(BIN)/python -m tests.support.proto

format: $(STAMP)  ## Let ruff format the code and mend what it can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the environment and all caches.
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
