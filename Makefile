# Two commands do all: `make demo` and `make test`. Each makes the environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow lint format bench torture fuzz study clean

help:
	@echo "make demo       learn on the embedded world, write demo/report.html"
	@echo "make test       all tests (minutes); make test-slow: those that take longer"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make bench      the benchmarks, as ratios"
	@echo "make torture    100 random kill -9, each resumed to the same bytes"
	@echo "make fuzz       readers against random input, two minutes"
	@echo "make study      every figure of the paper on the embedded world"
	@echo "make venv       the environment only"

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "making the environment (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: venv
	@$(BIN)/driftline demo --out demo

# Two processes of one thread each: idle OpenMP threads that spin would cost more than they bring.
test: venv
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-slow: venv
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv
	$(BIN)/driftline bench

torture: venv
	$(BIN)/python tests/torture.py --kills 100

fuzz: venv
	$(BIN)/python -m pytest tests/fuzz -m fuzz --fuzz-seconds 120

study: venv
	$(BIN)/driftline reproduce all --stream world --seeds 1 --scale quick --out results

clean:
	rm -rf $(VENV) demo results
