# make demo and make test set up everything they need in .venv; nothing is installed elsewhere.
PYTHON ?= python3
SEED ?= 1
BIN := .venv/bin
RUN := $(BIN)/python
# Tests sync their files thousands of times: they are in memory where there is room for them.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$6 == "/dev/shm" && $$4 > 4000000 {print $$6}')
PYTEST := $(if $(MEMORY),TMPDIR=$(MEMORY) )$(RUN) -m pytest

.PHONY: demo test test-quick check format bench bench-quick crash agents features requirements clean

demo: .venv/.ready
	@$(BIN)/takeback demo

# Tests start the program hundreds of times: it is compiled beforehand, also where Python may not do that by itself.
test: .venv/.ready
	@$(RUN) -m compileall -q src/takeback
	$(PYTEST) -n 2 --dist loadscope --no-loadscope-reorder

# A little of every room, in less than a minute.
test-quick: .venv/.ready
	@$(RUN) -m compileall -q src/takeback
	$(PYTEST) -n 2 --dist loadscope --no-loadscope-reorder -m quick

check: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(RUN) tools/check_docs.py

format: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Long runs of the durability promises; SEED=N repeats one exactly.
crash: .venv/.ready
	$(RUN) -m pytest tests/crash tests/files/test_apply_faults.py tests/examples/test_streaming.py --deep --seed $(SEED) --timeout 7200 -x

# Every coding agent of docs/guides/mcp.md uses our server; npm installs them in .venv, once.
agents: .venv/.ready
	$(PYTEST) tests/mcp_server/test_coding_agents.py --deep

# Takeback, the physical limit and the peers, interleaved in one run; writes docs/benchmarks.md.
bench: .venv-bench/.ready
	.venv-bench/bin/python -m benchmarks

# Whether every benchmark still runs, with as little as it can do; judges no figure, and needs no peer.
bench-quick: .venv/.ready
	$(if $(MEMORY),TMPDIR=$(MEMORY) )$(RUN) -m benchmarks --smoke > /dev/null

features: .venv/.ready
	@$(RUN) tools/features.py

requirements: .venv/.ready
	$(RUN) -m pip install --quiet uv
	for name in dev bench; do $(BIN)/uv pip compile --quiet --upgrade --universal --no-emit-index-url --no-header \
	  --no-annotate --python-version 3.11 requirements/$$name.in -o requirements/$$name.txt; done

clean:
	rm -rf .venv .venv-bench .mypy_cache .ruff_cache .hypothesis dist build

.venv/.ready: requirements/dev.txt pyproject.toml tools/venv.sh
	@tools/venv.sh $(PYTHON) .venv requirements/dev.txt

.venv-bench/.ready: requirements/bench.txt pyproject.toml tools/venv.sh
	@tools/venv.sh $(PYTHON) .venv-bench requirements/bench.txt
