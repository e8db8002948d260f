# Every target sets up .venv by itself; `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
JOBS ?= 2
# Tests wait for Java, for processes and for real clocks: one process more than two cores keeps both busy.
TEST_JOBS ?= 3
# Tests start hundreds of processes: without bytecode on disk each would compile everything that it imports.
unexport PYTHONDONTWRITEBYTECODE
# The tree of `make compiled` goes first where it is there and made from the present sources; otherwise this is empty.
WITH_COMPILED = PYTHONPATH="$$($(BIN)/python tools/compile.py --current)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow test-compiled check format soak compiled bench trace fuzz clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("veena needs Python 3.11 or newer; set PYTHON=/path/to/python3") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup ## 22 brokers as processes with 102 clients, then a bad day in the simulator
	$(BIN)/veena demo --once --out out/demo

test: setup ## the tests: every property at least once; 12 minutes on 2 cores
	$(BIN)/python tools/browser.py
	$(BIN)/python -m pytest -n $(TEST_JOBS) --deselect tests/test_tidy.py::test_the_house_keeps

slow: setup ## what `make test` deselects: more seeds, larger networks, rare planted bugs
	$(BIN)/python -m pytest -n $(TEST_JOBS) -m slow

test-compiled: compiled ## the tests of core, runtime and client on the compiled modules
	$(WITH_COMPILED) $(BIN)/python -m pytest -n $(TEST_JOBS) tests/core tests/runtime tests/client

check: setup ## format, lint, types, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_tidy.py

format: setup ## rewrite files in the house format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

soak: setup ## the long simulations: seeds 1 to 500 with every fault, 50 each with newcomers, narrow links, broken cores and liars, then new ones for SECONDS_TO_RUN
	$(WITH_COMPILED) $(BIN)/veena sim soak --seeds 500 --faults all --jobs $(JOBS)
	$(WITH_COMPILED) $(BIN)/veena sim soak --seeds 50 --faults all --guests 5 --jobs $(JOBS)
	$(WITH_COMPILED) $(BIN)/veena sim soak --seeds 50 --faults all --narrow 12 --jobs $(JOBS)
	$(WITH_COMPILED) $(BIN)/veena sim soak --seeds 50 --faults all --breaks 12 --jobs $(JOBS)
	$(WITH_COMPILED) $(BIN)/veena sim soak --seeds 50 --faults all --signed --liars 8 --jobs $(JOBS)
	$(WITH_COMPILED) $(BIN)/veena sim soak --seeds 50 --faults all --costly --jobs $(JOBS)
	$(WITH_COMPILED) $(BIN)/veena sim soak --seconds $(or $(SECONDS_TO_RUN),300) --faults all --jobs $(JOBS)

compiled: setup ## the same sources through mypyc, in build/compiled; needs a C compiler
	$(BIN)/python tools/compile.py

bench: setup ## benchmarks, as ratios measured in one run
	$(BIN)/python benchmarks/convergence.py
	$(BIN)/veena bench matching --quick

fuzz: setup ## attack every door of a broker by chance beside an honest client, SECONDS_TO_RUN (60) each
	$(BIN)/python benchmarks/fuzz.py --seconds $(or $(SECONDS_TO_RUN),60)

trace: setup ## docs/TRACEABILITY.md from the ids that the tests cite
	$(BIN)/python docs/trace.py

clean: ## remove what the targets made
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .hypothesis
