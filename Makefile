# Two commands do everything on a fresh machine with CPython 3.11: `make reproduce` and `make test`.
PYTHON ?= python3.11
PROFILE ?= standard
# Options for pip, such as PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu" for the CPU build of torch.
PIP_FLAGS ?=
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS)

.PHONY: reproduce test test-all lab bench lint third-party venv clean

reproduce: $(READY)
	$(BIN)/workbench reproduce --profile $(PROFILE)

# In two processes, file by file, since the tests of a file share what its fixtures build; tests/conftest.py puts the longest files first. Each process has a
# core, so the threads of PyTorch and BLAS would only wait for each other's. It stands here so that pytest alone (an editor, -x, -s) stays in one process.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

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

# Writes THIRD_PARTY.md anew, after a change of the lock or of data/external.toml.
third-party: $(READY)
	$(BIN)/python tests/third_party.py

venv: $(READY)

# .ready is written last and holds what the environment was built from: this folder (scripts know their path, so a copied .venv is none) and the lock.
# So it is built once, and again when the lock has changed or a build was cut short. A second make waits for the lock file to be free.
STAMP := { echo "$(CURDIR)"; cat requirements.lock; }

$(READY): requirements.lock FORCE
	@exec 9<requirements.lock; \
	if command -v flock >/dev/null 2>&1; then flock -n 9 || { echo "Another make is building .venv: waiting for it." >&2; flock 9; }; fi; \
	if [ -x $(BIN)/python ] && $(STAMP) | cmp -s - $@; then exit 0; fi; \
	found=$$($(PYTHON) -c 'import sys; print(sys.implementation.name, "%d.%d" % sys.version_info[:2])' 2>&1); \
	if [ "$$found" != "cpython 3.11" ]; then \
	  echo "CPython 3.11 is needed, and '$(PYTHON)' gives: $$found" >&2; \
	  echo "Install it (python.org; pyenv install 3.11; conda create -n python311 python=3.11) or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	rm -f $@ && rm -rf .venv && $(PYTHON) -m venv .venv && $(STAMP) > $@.partial && \
	  $(PIP) -r requirements.lock && $(PIP) --no-deps --no-build-isolation -e . && mv $@.partial $@ || \
	  { echo "The environment .venv is not complete (the reason stands above); the next make builds it anew." >&2; exit 1; }

FORCE:

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache
