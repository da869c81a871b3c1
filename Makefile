# make demo | test | bench | docs | prove | prove-gpu | prove-localnet | compat | release | verify-release | lint | install | clean.
# Settings: PYTHON=python3.12  VENV=/path/to/venv  TORCH_INDEX=URL  ARGS="..."
# The stamps in $(VENV) make a second run start at once; a changed pyproject.toml or constraints.txt installs again.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
TORCH_INDEX ?=
PY = $(VENV)/bin/python
RUN_STAMP = $(VENV)/.installed
DEV_STAMP = $(VENV)/.installed-dev
PINS = pyproject.toml constraints.txt
PIP_INSTALL = PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --quiet --quiet --disable-pip-version-check \
	--constraint constraints.txt --editable
# torch for processors alone, from pip's own index or the one named: its dependencies come with the install that follows
TORCH_CPU = PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --quiet --quiet --disable-pip-version-check \
	--constraint constraints.txt --retries 1 --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0+cpu
# uv is several times as fast, and reads none of pip's settings: not where they name another index
UV_INSTALL = ! $(PY) -m pip config list | grep -q '[.]index-url=' && PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install \
	--quiet --quiet --disable-pip-version-check --no-compile --constraint constraints.txt uv \
	&& $(VENV)/bin/uv pip install --quiet --python $(PY) --constraint constraints.txt --editable
PIP_FAILED = { echo "pip could not install (its reason stands above)"; \
	echo "      fix: check the network or set PIP_INDEX_URL to a mirror, then run the same command again"; exit 3; } >&2

.PHONY: help install demo test lint style types bench docs prove prove-gpu prove-localnet compat release verify-release clean

help:
	@echo "make demo      install, then run the whole arena once on this machine"
	@echo "make test      install with the development tools and the training engine, lint, type-check, run every test"
	@echo "make bench     measure; prints a table and writes build/bench.json"
	@echo "make prove     the long proofs (full simulation, kill loops, 2.7 M documents): hours; goes on where it was stopped"
	@echo "make docs      the site of the documents in build/site; open build/site/index.html"
	@echo "make compat    FOREIGN=DIR: run the foreign programs in DIR, write build/compat.json (DIR: tests/compat/rows.py)"
	@echo "make prove-gpu  what training takes on this card (tests/prove/gpu.py); without a network WHEELS=FOLDER"
	@echo "make prove-localnet  the chain adapter against a real runtime: ARENA_PROVE_CHAIN=ws://..."
	@echo "make release   KEY=FILE: sdist, wheel, SBOM, image and signed sums in build/release, and the tag"
	@echo "make verify-release  RELEASE=DIR SIGNERS=FILE: signature, sums, rebuild, SBOM, and the demo from the wheel"
	@echo "make lint      ruff and mypy only"
	@echo "make install   the environment in $(VENV) with the development tools"
	@echo "make clean     remove the environment, caches and build results"

install: $(DEV_STAMP)

demo: $(RUN_STAMP)
	@$(PY) -m neurons.cli.app demo $(ARGS)

# loadfile: a test file's fixtures (a Postgres, an index) are made once, in one worker; no reorder: tests/conftest.py puts
# the long files first, which xdist would put last, since they hold few tests. Bytecode is kept, whatever the shell says:
# else each of the some hundred commands that tests start would compile the product anew. Three workers, as tests wait
test: lint $(VENV)/bin/promtool $(VENV)/bin/chromium
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m "not prove" --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 15 $(ARGS)

lint: style types

style: $(DEV_STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-logo

types: $(DEV_STAMP)
	$(PY) -m mypy

bench: $(DEV_STAMP)
	PYTHONDONTWRITEBYTECODE= $(PY) -m tests.benchmarks.run $(ARGS)

docs: $(DEV_STAMP)
	$(PY) -m mkdocs build --strict --quiet $(ARGS)

prove: $(DEV_STAMP) $(VENV)/bin/chromium
	@$(PY) -m tests.prove $(ARGS)

# WHEELS: a folder of `python -m tests.prove.wheels`, for a machine that has Python 3.12 and torch and no network
prove-gpu: $(if $(WHEELS),build/gpu-venv/.installed,$(DEV_STAMP))
	@$(if $(WHEELS),build/gpu-venv/bin/python,$(PY)) -m tests.prove.gpu $(if $(WHEELS),--wheels $(WHEELS)) $(ARGS)

build/gpu-venv/.installed:
	@$(PYTHON) -m venv --system-site-packages build/gpu-venv
	@for first in $(WHEELS)/*/*.whl.00; do cat $(WHEELS)/*/$$(basename $$first 00)[0-9][0-9] > $${first%.00}; done
	@for part in stages market; do build/gpu-venv/bin/python -m pip install --quiet --no-index \
		--find-links $(WHEELS)/stages --find-links $(WHEELS)/market --requirement $(WHEELS)/$$part/requirements.txt \
		|| echo "not all of $$part is installed: what needs it will say so"; done
	@touch $@

prove-localnet: $(DEV_STAMP)
	@$(PY) -m tests.prove.localnet

compat: $(DEV_STAMP)
	$(PY) -m tests.compat $(FOREIGN)

release: $(DEV_STAMP)
	@$(PY) .ci/release.py build --key "$(KEY)" $(ARGS)

verify-release: $(DEV_STAMP)
	@$(PY) .ci/release.py verify "$(RELEASE)" --signers "$(SIGNERS)" $(ARGS)

# where it can't be had, the tests of the alert rules say so, and fail under CI
$(VENV)/bin/promtool: | $(DEV_STAMP)
	@.ci/promtool $(VENV)/bin || echo "no promtool (Debian's package prometheus): the alert rules are not tested here"

# where it can't be had, the tests of the pages in a browser say so, and fail under CI; after the other, since both ask apt
$(VENV)/bin/chromium: | $(DEV_STAMP) $(VENV)/bin/promtool
	@.ci/chromium $(VENV) || echo "no Chromium (Debian's package chromium): the pages are not tested in a browser here"

# removes a $(VENV) only if this file made it
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis agent_arena.egg-info
	[ ! -e $(RUN_STAMP) ] || rm -rf $(VENV)

# pip is the last thing the venv module writes: an interrupted creation is begun again
$(VENV)/bin/pip:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "$(PYTHON) is missing"; \
		echo "      fix: install Python 3.11 or newer, or name yours: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; \
		exit 3; } >&2
	@ARENA_MAKE_TARGET="$(MAKECMDGOALS)" $(PYTHON) .ci/preflight.py . $(VENV)
	@$(PYTHON) -m venv $(VENV)

# --no-compile: of all that Python a part is imported, and compiled then
$(RUN_STAMP): $(PINS) | $(VENV)/bin/pip
	@echo "installing into $(VENV) (about a minute) ..."
	@$(UV_INSTALL) . 2>/dev/null || $(PIP_INSTALL) . --no-compile || $(PIP_FAILED)
	@touch $@

$(DEV_STAMP): $(PINS) | $(VENV)/bin/pip
	@echo "installing into $(VENV) with the development tools and the training engine (2 GB, some minutes) ..."
	@$(TORCH_CPU) --no-compile 2>/dev/null || echo "no torch for processors alone in pip's index (name one that has it: TORCH_INDEX=URL): taking the default build, on x86_64 several GB with CUDA"
	@$(PIP_INSTALL) '.[dev,train]' --no-compile || $(PIP_FAILED)
	@touch $(RUN_STAMP) $@
