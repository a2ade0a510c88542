# make test        set everything up in .venv and run every check; needs Python 3.11+ and, for the
#                  real-server tests, a Go toolchain (or KUBEBUILDER_ASSETS)
# make lint        ruff, types and the import contracts only
# make controlplane  build etcd, kube-apiserver, kubectl and kube-scheduler into the user's cache
# make lock        write the requirements locks anew (needs uv)
# PYTEST_ARGS="-k name -x" narrows the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=

.PHONY: test lint controlplane venv lock clean

# pytest comes last, so that its summary is the last line of the run.
test: $(STAMP)
	@echo "== control plane for the real-server tests"
	@$(BIN)/python -m gangsched.controlplane.build --optional
	@$(MAKE) --no-print-directory lint
	@echo "== pytest"
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMP)
	@echo "== ruff"
	@$(BIN)/ruff check .
	@echo "== mypy"
	@$(BIN)/mypy
	@echo "== import contracts"
	@$(BIN)/lint-imports

controlplane: $(STAMP)
	@$(BIN)/python -m gangsched.controlplane.build

venv: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: gangsched needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
			"name another with: make PYTHON=python3.12" >&2; exit 1; }
	@echo "== $(VENV): installing the locked requirements"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# requirements.lock is what tests run with; requirements.runtime.lock is that part of it that an image needs.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	--no-annotate --quiet

lock:
	$(COMPILE) --extra dev --upgrade pyproject.toml -o requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml -o requirements.runtime.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
