# make demo        gangs on a simulated cluster, in a minute; needs Python 3.11+ and nothing else
# make test        set everything up in .venv and run every check; needs Python 3.11+ and, for the
#                  real-server tests, a Go toolchain (or KUBEBUILDER_ASSETS); as root, with containerd, runc and
#                  busybox-static, real kubelets too
# make check       the quick way round: lint, and the tests of core, model, plugins and house but for those marked `long`,
#                  which compare hundreds of cases or play days through; two minutes on two cores
# make lint        ruff, the import contracts and types only
# make style       ruff only
# make contracts   the import contracts only
# make pythons     what could differ on the other Pythons that are promised, on those that are found here
# make coverage    run all tests that need no real server, and some storms, on a Python from 3.12 on, and count the lines
#                  that are run: a table by room; those that are not are named in build/coverage; PYTEST_ARGS=tests/core
#                  narrows it
# make storm       simulated storms for STORM_MINUTES (default 2), other seeds for each commit
# make long-storm  LONG_STORM_SEEDS (default 0..19999) of the full storm and of the duel of two schedulers, late binds
#                  included: hours; its last lines say what was run of which commit, and what was found
# make controlplane  build etcd, kube-apiserver, kubectl, kube-scheduler, kube-controller-manager, kubelet, Jaeger and
#                  Helm into the user's cache, and the programs that selectors and allocations of devices are
#                  compared with
# make protocol    generate the messages and stubs of kubelet's APIs anew (fetches grpcio-tools)
# make docs        build the documentation's site into build/site, strictly: a dead link fails
# make docs-reference  write anew what follows from the code in docs/ (references, tables, pictures), and the chart
# make chart       write anew what the Helm chart has from deploy/ and from the configuration's fields
# make versions    run the tests that every supported Kubernetes must pass against 1.34 to 1.37, built from their
#                  modules (minutes each, once); VERSIONS="v1.34.4" for some of them
# make conformance  Kubernetes' own end-to-end tests of scheduling and DRA, with gangsched and kube-scheduler, into
#                  docs/conformance.md; CONFORMANCE_ARGS="--suite=dra" or "--focus=Preemption" for some of them
# make day         make the recorded day of tests/journal/day anew, after a change that is meant to decide otherwise
# make wheels      build into dist/ gangsched, which a cluster installs, and gangsched-lab, which has the demo and
#                  whatever else tries or measures it
# make release     build into dist/ what a release consists of, from the last commit: both wheels, the sdist, the chart,
#                  an SBOM and SHA256SUMS, the same bytes each time; the image where a container engine answers
# make sbom        write build/sbom/: what an image holds, and what tests run with, as CycloneDX
# make venv        only set up .venv
# make clean       take away .venv and all that was built in here; not what is in the user's cache
# make help        print this
# make lock        write the requirements locks anew (needs uv)
# PYTEST_ARGS="-k name -x" narrows the tests, PYTEST_JOBS=0 runs them one after the other; DEMO_ARGS=--keep
# lets the demo go on.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.installed-runtime
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
define CHECK_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "make: gangsched needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1);" \
		"name another with: make PYTHON=python3.12" >&2; exit 1; }
endef
PYTEST_ARGS ?=
PYTEST_JOBS ?= 3
CHECK_JOBS ?= 2
STORM_MINUTES ?= 2
STORM_JOBS ?= 2
LONG_STORM_SEEDS ?= 0..19999
LONG_STORMS ?= storm duel
STORM_SAID := build/storm.txt
STORM_FOUND := build/storm.found
DEMO_ARGS ?=
PYTHONS ?=
CHECKED ?= tests/house tests/core tests/model tests/plugins

# Images set it. Here each of the hundreds of processes that tests start would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test check coverage pythons demo lint style contracts storm long-storm controlplane venv lock protocol docs docs-reference chart wheels release sbom versions conformance day clean help

# A find of the storms does not keep pytest from running, and fails the run when pytest has ended: its seed and the
# command that shows it again are printed last. Where nothing is found, pytest's summary is the last line.
# Three files at a time on two cores, each worker with a control plane of its own: tests mostly wait for servers and
# for clocks. tests/conftest.py puts the long files first, so xdist keeps its order.
test: $(STAMP)
	@echo "== control plane for the real-server tests"
	@$(BIN)/python -m gangsched.lab.controlplane.build --optional
	@$(MAKE) --no-print-directory lint
	@mkdir -p build && rm -f $(STORM_FOUND)
	@{ $(MAKE) --no-print-directory storm || touch $(STORM_FOUND); } 2>&1 | tee $(STORM_SAID)
	@echo "== pytest"
	@status=0; \
	$(BIN)/python -m pytest -n $(PYTEST_JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS) || status=$$?; \
	if [ -e $(STORM_FOUND) ]; then \
		echo "== the storms found a fault, told above; it may be older than this commit, and has to be mended:"; \
		grep "again:" $(STORM_SAID) || tail -n 5 $(STORM_SAID); \
		status=1; \
	fi; \
	exit $$status

# None of its tests waits, so two keep two cores busy. mypy keeps one busy for 40 s when nothing is known from the time
# before, and has only to be done when they are; what it finds is printed last.
check: style contracts
	@mkdir -p build
	@$(BIN)/mypy >build/types.txt 2>&1 & types=$$!; trap "kill $$types" INT TERM; status=0; \
	$(BIN)/python -m pytest -q -n $(CHECK_JOBS) -m "not real and not long" $(CHECKED) $(PYTEST_ARGS) || status=$$?; \
	wait $$types || status=$$?; echo "== mypy"; cat build/types.txt; exit $$status

pythons: $(STAMP)
	@$(BIN)/python -m tests.pythons $(PYTHONS)

coverage: $(STAMP)
	@$(BIN)/python -m tests.covered --jobs $(CHECK_JOBS) -- $(PYTEST_ARGS)

demo: $(RUNTIME)
	@$(BIN)/gangsched demo $(DEMO_ARGS)

lint: style contracts
	@echo "== mypy"
	@$(BIN)/mypy

style: $(STAMP)
	@echo "== ruff"
	@$(BIN)/ruff check .

contracts: $(STAMP)
	@echo "== import contracts"
	@$(BIN)/lint-imports

storm: $(STAMP)
	@echo "== simulation, on seeds of this commit's own"
	@$(BIN)/python -m gangsched.lab.sim --storm all --seeds commit --minutes $(STORM_MINUTES) --jobs $(STORM_JOBS)

long-storm: $(STAMP)
	@$(BIN)/python -m gangsched.lab.sim $(LONG_STORMS:%=--storm %) --seeds $(LONG_STORM_SEEDS) --jobs $(STORM_JOBS)

controlplane: $(STAMP)
	@$(BIN)/python -m gangsched.lab.controlplane.build

venv: $(STAMP)

# What the demo needs is a part of what the tests need, and there in half the time. setuptools, which puts the
# project itself in place, comes from the other lock.
$(RUNTIME): requirements.runtime.lock requirements.lock pyproject.toml
	@$(CHECK_PYTHON)
	@echo "== $(VENV): installing the $$(grep -c '^[^ ]*==' requirements.runtime.lock) locked packages that" \
		"gangsched needs to run, about 20 s"
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock | $(PIP_INSTALL) --require-hashes \
		-r requirements.runtime.lock -r /dev/stdin
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP): requirements.lock pyproject.toml
	@$(CHECK_PYTHON)
	@echo "== $(VENV): installing the locked requirements"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $(RUNTIME) $@

# requirements.lock is what tests run with; requirements.runtime.lock is that part of it that an image needs;
# requirements.docs.lock is what the site is built with.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	--no-annotate --quiet

lock:
	$(COMPILE) --extra dev --upgrade pyproject.toml -o requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml -o requirements.runtime.lock
	$(COMPILE) --upgrade docs/site/requirements.in -o requirements.docs.lock

docs-reference: chart
	@$(BIN)/python -m tests.docs.generate

chart: $(STAMP)
	@$(BIN)/python -m tests.deploy.generate_chart

# In an environment of its own: nothing of it is needed to run, to test or to read the pages.
DOCS := build/docs-venv
docs: $(DOCS)/.installed
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict --clean -f docs/site/mkdocs.yml
	@echo "build/site/index.html"

$(DOCS)/.installed: requirements.docs.lock
	@$(CHECK_PYTHON)
	@echo "== $(DOCS): installing the locked requirements of the site"
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

VERSIONS ?=
versions: $(STAMP)
	@$(BIN)/python -m gangsched.lab.controlplane.build
	@$(BIN)/python -m tests.versions $(VERSIONS)

day: $(STAMP)
	@$(BIN)/python -m tests.journal.day.accept

CONFORMANCE_ARGS ?=
conformance: $(STAMP)
	@$(BIN)/python -m gangsched.lab.controlplane.build
	@$(BIN)/python -m tests.conformance $(CONFORMANCE_ARGS)

wheels: $(STAMP)
	@# What a build has left would go into the next one, whatever has been renamed since.
	@rm -rf build/lib build/lab
	@for project in . ./gangsched/lab; do $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --no-index --wheel-dir dist $$project || exit 1; done
	@ls dist/*.whl

release: $(STAMP)
	@$(BIN)/python -m tests.deploy.release

sbom: $(STAMP)
	@$(BIN)/python -m tests.deploy.sbom

# grpcio-tools is needed for this alone; what it makes is committed, and needs the protobuf of the lock.
PROTOCOLS := $(addprefix gangsched/agent/kubelet_api/,deviceplugin podresources pods pod) tests/kubelet/claims
protocol: $(STAMP)
	@$(PYTHON) -m venv build/protocol
	@build/protocol/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools grpclib
	@for name in $(PROTOCOLS); do PATH=$(CURDIR)/build/protocol/bin:$$PATH build/protocol/bin/python \
		-m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpclib_python_out=. \
		$$name.proto || exit 1; done
	@rm -f gangsched/agent/kubelet_api/pod_grpc.py tests/kubelet/claims_grpc.py

help:
	@sed -n '/^#/!q; s/^# //p' $(firstword $(MAKEFILE_LIST))

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
