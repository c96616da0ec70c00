# Two commands do everything: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
ENGINE := .engine
BIN := $(VENV)/bin
CODE := tuner search_spaces workloads runners tests demo bench docs

.DEFAULT_GOAL := help
.PHONY: help setup engine demo test test-fast test-gpu test-engine check format lock clean bench-read bench-record drill soak bench-launches bench-replay bench-search bench-decision

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/installed engine ## Make the tuner's environment (.venv) and the CPU engine's own (.engine)

$(VENV)/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
	  { echo "make setup: $(PYTHON) must be Python 3.11 to 3.14; name one with PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "make setup: $(PYTHON) cannot make environments; install its venv module (Debian: apt install python3-venv)"; exit 1; }
	@echo "installing the tuner's environment into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock > $(VENV)/install.log 2>&1 || \
	  { tail -n 5 $(VENV)/install.log; echo "make setup: packages could not be installed (all of it: $(VENV)/install.log); check the network, or set PIP_INDEX_URL to a mirror, and run it again"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . >> $(VENV)/install.log 2>&1 || \
	  { tail -n 5 $(VENV)/install.log; echo "make setup: the project itself could not be installed (see $(VENV)/install.log)"; exit 1; }
	@touch $@
	@echo "tuner environment $(VENV): ready ($(BIN)/tune)"

engine: ## Make the CPU engine's environment (a GPU host uses its own vLLM instead)
	@$(PYTHON) demo/engine/build.py --dir $(ENGINE)

demo: setup ## Tune a real vLLM with a real DFlash draft on the sample traffic (about 15 minutes on 2 cores)
	@sh demo/demo.sh

test: setup ## Everything, real engine included
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not engine and not packaging and not gpu"
	$(BIN)/python -m pytest -m "engine or packaging"

test-fast: $(VENV)/installed ## What needs no engine, in under a minute
	$(BIN)/python -m pytest -n 3 --dist worksteal -q -m "not engine and not packaging and not gpu and not slow"

test-gpu: $(VENV)/installed ## What needs NVIDIA GPUs; skipped, with the reason, where there are none
	$(BIN)/python -m pytest -m gpu

test-engine: setup ## Only what needs the real engine
	$(BIN)/python -m pytest -m engine

bench-read: $(VENV)/installed ## How fast a workload is read, next to bare orjson, and in how much memory
	$(BIN)/python -m bench.read_speed

bench-record: $(VENV)/installed ## What tune record adds to a request, against a mock server
	$(BIN)/python bench/record_overhead.py

bench-replay: setup ## What our load client costs beside its peers, 10 minutes (EVALSCOPE=its environment adds evalscope)
	@test -d demo/build/bench-replay || $(ENGINE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --target demo/build/bench-replay pandas python-dateutil six tzdata
	$(BIN)/python -m bench.replay.run $(if $(EVALSCOPE),--evalscope $(EVALSCOPE))

bench-search: $(VENV)/installed ## Launches until the best config is found, beside Optuna's TPE, random, grid and hand tuning (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.search.run

bench-decision: $(VENV)/installed ## True regret, false gains and coverage over 400 whole studies on tables (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.decision.run

check: $(VENV)/installed ## Lint, types and import rules, in under a minute
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

drill: $(VENV)/installed ## Every fault in a real study of simulated engines, and 50 kills of the tuner; prints a table (needs root for some)
	$(BIN)/python -m bench.drill

soak: $(VENV)/installed ## A study of 300 simulated trials: the tuner's memory and its share of the time, about 30 minutes
	$(BIN)/python -m bench.soak

bench-launches: setup ## 30 launches and stops of the real engine: is anything left behind, 15 minutes or more
	$(BIN)/python -m bench.launches

format: $(VENV)/installed ## Format the code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lock: ## Pin all packages again from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 -o requirements.lock

clean: ## Remove everything that the targets above made
	rm -rf $(VENV) $(ENGINE) demo/runs demo/build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
