# Everything here works on a machine that has Python 3.11, pip and make.
# The environment is .venv; `make setup` builds it from the two locked, hashed files
# in requirements/ and does nothing when it is up to date.

.PHONY: setup demo test check cluster bench campaign lock clean help
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first interpreter that is new enough and has pip; `make PYTHON=…` overrides.
ifndef PYTHON
PYTHON := $(shell for each in python3.11 python3.12 python3.13 python3 python; do \
	$$each -c 'import sys, venv, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$each; break; }; done)
endif

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.setup-done
COMPILED := hatch_build.py $(wildcard src/headrace/kernels/*.[ch])
BENCHMARKS := log promises recovery feed operators stores windows joins joins_operators joins_growth freshness stages \
	capture sourcing
BY_GROUP := --dist loadgroup --no-loadscope-reorder
INSTALL := --disable-pip-version-check --quiet --no-input

help:
	@echo "make demo      run the demo shop until Ctrl-C (or SECONDS=60), then verify it"
	@echo "make test      run the tests (default tier, six workers)"
	@echo "make check     lint, check types and import layers"
	@echo "make setup     build .venv; the other targets do so when needed"
	@echo "make bench     run the benchmarks"
	@echo "make cluster   run the demo on several machines (network namespaces; needs root and iproute2)"
	@echo "make campaign  run the long tests: crash runs, fuzzing"

setup: $(STAMP)

# Created without pip and filled by the outer one, because some systems ship a
# Python that cannot put pip into a new environment.
$(RUN):
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with pip was found on the PATH;" \
		"install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv --without-pip $(VENV)

# Two steps: PySpark is distributed as source, and must be built by the pinned
# setuptools rather than by whichever is newest on the day.
ifeq ($(wildcard src/headrace/kernels/_kernels.so),)
.PHONY: $(STAMP)
endif
$(STAMP): requirements/build.txt requirements/lock.txt pyproject.toml $(COMPILED) | $(RUN)
	@echo "Installing the locked versions into $(VENV) (the first time takes a few minutes)"
	@if $(RUN) -c 'import pip' 2>/dev/null; then pip="$(RUN) -m pip"; \
		else pip="$(PYTHON) -m pip --python $(RUN)"; fi; \
	$$pip install $(INSTALL) --require-hashes -r requirements/build.txt
	@$(RUN) -m pip install $(INSTALL) --require-hashes --no-build-isolation -r requirements/lock.txt
	@$(RUN) -m pip install $(INSTALL) --no-deps --no-build-isolation --editable .
	@$(RUN) -m compileall -q src
	@echo "Creating a class archive, so that Spark starts faster (half a minute, once)"
	@$(RUN) -m headrace.app.run.class_archive || echo "That did not work; it is optional"
	@touch $@

# Runs until Ctrl-C, or for SECONDS (60 without a terminal), and ends with a verification.
# `exec`, so that no shell in between dies of the Ctrl-C that is meant for the demo.
demo: $(STAMP)
	@exec $(RUN) -m headrace demo $(if $(SECONDS),--seconds $(SECONDS),$$(test -t 0 || echo --seconds 60))

test: $(STAMP)
	$(RUN) tools/default_run.py -n 6 $(BY_GROUP) -m "not slow and not machines"

# Without root, iproute2 or Kafka's jars this skips, with the reason; HEADRACE_REQUIRE_MACHINES=1 makes it fail.
cluster: $(STAMP)
	$(RUN) -m pytest tests/crash/cluster -m "machines and not slow" -rs

campaign: $(STAMP)
	$(RUN) -m pytest -n 4 $(BY_GROUP) -m slow --timeout 7200
	HEADRACE_EXAMPLES=40 $(RUN) -m pytest -n 4 $(BY_GROUP) -m "not slow" --timeout 7200 tests/property

check: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(STAMP)
	@for each in $(BENCHMARKS); do echo "== $$each"; $(RUN) benchmarks/$$each.py || exit 1; done

# Needs uv (from PyPI). Run after changing pyproject.toml or requirements/*.in, then `make test`.
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url
lock:
	$(LOCK) requirements/build.in -o requirements/build.txt
	$(LOCK) pyproject.toml requirements/dev.in -c requirements/build.txt -o requirements/lock.txt

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
