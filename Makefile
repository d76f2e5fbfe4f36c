# Two commands do everything on a fresh machine with CPython 3.11: `make reproduce` and `make test`.
PYTHON ?= python3.11
PROFILE ?= standard
# Options for pip, such as PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu" for the CPU build of torch.
PIP_FLAGS ?=
BIN := .venv/bin
READY := .venv/.ready

.PHONY: reproduce test test-all lab bench lint venv clean

reproduce: $(READY)
	$(BIN)/workbench reproduce --profile $(PROFILE)

test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

test-all: $(READY)
	$(BIN)/python -m pytest

lab: $(READY)
	$(BIN)/jupyter lab --ip=127.0.0.1 notebooks

bench: $(READY)
	$(BIN)/python -m pytest tests/benchmarks -o addopts= --benchmark-only --benchmark-disable-gc -s

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

venv: $(READY)

# .ready holds the lock's checksum: the environment is built once and again only when the lock changes (not when its time stamp does).
$(READY): requirements.lock FORCE
	@if [ ! -f $@ ] || [ "$$(cat $@)" != "$$(sha256sum < requirements.lock)" ]; then \
	  command -v $(PYTHON) >/dev/null 2>&1 || { echo "CPython 3.11 not found as '$(PYTHON)': install it (python.org, pyenv, conda) or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }; \
	  $(PYTHON) -c 'import sys; ok = sys.version_info[:2] == (3, 11) and sys.implementation.name == "cpython"; sys.exit(None if ok else f"$(PYTHON) is {sys.implementation.name} {sys.version.split()[0]}; this project needs CPython 3.11: make PYTHON=/path/to/python3.11")' || exit 1; \
	  rm -rf .venv && $(PYTHON) -m venv .venv && \
	  $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -r requirements.lock && \
	  $(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e . && \
	  sha256sum < requirements.lock > $@; \
	fi

FORCE:

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache
