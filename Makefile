# Needs Python 3.11 or newer; `make e2e` also builds a Kubernetes control plane, which takes minutes once.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# How many processes share the tests. Many wait for timers and sockets, so four keep two cores busy; in e2e each has a
# control plane.
test exhaustive e2e: JOBS ?= 4
STAMP  := $(VENV)/.installed

# Tests start dozens of processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv lint docs test exhaustive e2e operators suites soak bench-e2e bench-live bench-growth image image-test image-requirements release demo references kustomize crds clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stromboli needs Python 3.11 or newer: make PYTHON=python3.13 ...")'
	@echo 'setting up $(VENV), which takes some minutes once'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

exhaustive: $(STAMP)
	$(BIN)/python -m pytest -m 'exhaustive and not perf' -n $(JOBS) --dist worksteal $(ARGS)

e2e: $(STAMP)
	$(BIN)/python -m tests.controlplane.build
	$(BIN)/python -m pytest -m e2e -n $(JOBS) --dist worksteal $(ARGS)

operators: $(STAMP)
	$(BIN)/python -m tests.controlplane.build
	$(BIN)/python -m tests.operators.build
	$(BIN)/python -m pytest -m operators $(ARGS)

suites: $(STAMP)
	$(BIN)/python -m tests.controlplane.build
	$(BIN)/python -m tests.suites.volcano $(ARGS)
	$(BIN)/python -m tests.suites.kubernetes

soak: $(STAMP)
	$(BIN)/python -m tests.controlplane.build
	$(BIN)/python -m tests.faults.soak $(ARGS)

bench-e2e: $(STAMP)
	$(BIN)/python -m tests.controlplane.build
	$(BIN)/python -m tests.perf.bench_e2e $(ARGS)

bench-live: $(STAMP)
	$(BIN)/python -m tests.perf.bench_live $(ARGS)

bench-growth: $(STAMP)
	$(BIN)/python -m tests.perf.growth --svg docs/growth.svg $(ARGS)

# ENGINE=docker, podman or buildah; BASE, TAG and PLATFORM are options of deploy/image/build.py, PLATFORM=linux/amd64,linux/arm64
# makes one image for both.
image:
	$(PYTHON) deploy/image/build.py $(if $(BASE),--base $(BASE)) $(if $(TAG),--tag $(TAG)) $(if $(PLATFORM),--platform $(PLATFORM)) $(ARGS)

image-test: $(VENV)/.image
	$(BIN)/python -m tests.controlplane.build
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m image $(ARGS)

image-requirements: $(VENV)/.image
	$(BIN)/uv pip compile pyproject.toml --extra otel --extra ui $(COMPILE) --output-file deploy/image/runtime.txt
	echo setuptools | $(BIN)/uv pip compile - $(COMPILE) --output-file deploy/image/build.txt

# A dry run, unless PUBLISH=yes; VERSION is that of pyproject.toml by default, SIGNING_KEY git's, SIGNING_CONFIG cosign's. IMAGE=no makes no image;
# else ENGINE, BASE, PLATFORM and ARGS are as for `make image`.
release:
	$(PYTHON) deploy/release.py $(VERSION) $(if $(PUBLISH),--publish) $(if $(SIGNING_KEY),--key '$(SIGNING_KEY)') $(if $(SIGNING_CONFIG),--signing-config '$(SIGNING_CONFIG)') $(if $(filter no,$(IMAGE)),--no-image) $(if $(BASE),--base $(BASE)) $(if $(PLATFORM),--platform $(PLATFORM)) $(ARGS)

COMPILE := --constraint constraints.txt --python-version 3.11 --universal --generate-hashes --no-header --no-annotate --quiet

$(VENV)/.image: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[image]'
	touch $@

demo: $(STAMP)
	$(BIN)/stromboli demo $(ARGS)

references: $(STAMP)
	$(BIN)/python -m stromboli.cli.references docs

kustomize: $(STAMP)
	helm=$$($(BIN)/python -c 'from tests.controlplane.build import helm; print(helm())') && \
	  $$helm template stromboli charts/stromboli --namespace stromboli-system --no-hooks > deploy/kustomize/stromboli.yaml

crds: $(STAMP)
	$(BIN)/python -m stromboli.api.crd_schema charts/stromboli/files/crds

clean:
	rm -rf $(VENV) build dist site app/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
