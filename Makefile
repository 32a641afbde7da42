# `make demo` and `make test` work from a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Versions with hashes, for every platform. `make LOCK= ...` does without it, where an index lacks some of its files.
LOCK ?= requirements.lock

# Tests run in so many processes: half of the suite waits for timeouts of real ones.
WORKERS ?= 3

# Training frameworks come and go faster than we release: their tests have an environment of their own.
FRAMEWORKS := .venv-frameworks

.PHONY: demo test exhaustive check lint alerts page slurm frameworks frameworks-brief site helm proto proto-check sbom audit clean
demo: $(STAMP)
	$(BIN)/holdfast demo

# A test of real processes that failed among the others is tried once more, alone; tests/suite.py says within what limits.
test: $(STAMP) lint
	$(BIN)/python -m tests.suite -n $(WORKERS) --dist worksteal --durations 25

# What repeats at length what a shorter test of `make test` shows: thousands of simulated schedules, more workloads,
# moments and storages. An hour or more.
exhaustive: $(STAMP)
	$(BIN)/python -m pytest -q --exhaustive -m exhaustive -n $(WORKERS) --dist worksteal --durations 25

# Under a minute: lint, types, layers, the house rules, and the tests that wait for nobody.
check: $(STAMP) lint
	$(BIN)/python -m tests.tidy
	$(BIN)/python -m pytest -q -m "pure and not slow" -n $(WORKERS)

lint: $(STAMP) proto-check
	$(BIN)/python supply/lock.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Kills ranks and waits for the alert, through a real Prometheus and Alertmanager (apt-get install both); a minute.
alerts: $(STAMP)
	$(BIN)/python -m tests.monitoring.live

# The status page in a real Chromium (apt-get install chromium): a killed rank, every view in light, dark and on a phone
# with screenshots in build/page, keyboard, axe-core (by npm), and its answers over HTTP. A few minutes.
page: $(STAMP)
	npm install --prefix build/page --no-save --silent --no-audit --no-fund --no-package-lock axe-core@4 || echo "no npm: axe-core checks nothing"
	$(BIN)/python -m pytest -q tests/page

# The batch script on a real Slurm of three nodes (as root; apt-get install slurm-wlm munge): a rank is killed, a node is
# lost, the time limit comes. Some minutes; `make test` skips these tests.
slurm: $(STAMP)
	HOLDFAST_SLURM=1 $(BIN)/python -m pytest -q tests/slurm

# The docs as a site, in build/site: pages, API reference, commands; a link that leads nowhere fails it. No network
# once the extra `docs` is installed (which `make test` does not need).
site: $(STAMP)
	$(BIN)/python -c 'import material, mkdocstrings' 2>/dev/null || $(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'the site: build/site/index.html'

# Scripts of transformers, accelerate and lightning, and logs of TensorBoard, W&B and MLflow, killed under Holdfast and
# compared with undisturbed runs: some minutes. Before them, the tests that need a framework, which `make test` skips.
# In an environment of its own, with the versions of tests/frameworks/requirements.txt where the index has them.
# Where the index cannot be reached, every case is named as skipped.
frameworks:
	$(PYTHON) -m tests.frameworks.environment $(FRAMEWORKS)

# One case of each framework: what CI has time for.
MID_EPOCH = hf_mid_epoch lightning_mid_epoch accelerate_mid_accumulation fabric_mid_accumulation
frameworks-brief:
	$(PYTHON) -m tests.frameworks.environment $(FRAMEWORKS) $(MID_EPOCH:%=--case %)

# The chart: its README and schema are fresh, it is linted, rendered, and checked against Kubernetes' schemas.
KUBEFLOW = tests/helm/crds/node_modules/kubeflow
KUBEFLOW_URL = https://raw.githubusercontent.com/kubeflow/trainer/v2.3.0/manifests/base/crds/trainer.kubeflow.org
helm: $(STAMP)
	$(BIN)/python helm/generate.py --check
	npm install --prefix tests/helm/crds --silent --no-audit --no-fund --no-package-lock || echo "no npm: CRDs are not checked"
	mkdir -p $(KUBEFLOW) && for kind in clustertrainingruntimes trainingruntimes trainjobs; do \
	  curl -fsSL --max-time 60 -o $(KUBEFLOW)/trainer.kubeflow.org_$$kind.yaml $(KUBEFLOW_URL)_$$kind.yaml || \
	  { echo "no $$kind from GitHub: runtimes of Kubeflow are not checked"; rm -rf $(KUBEFLOW); break; }; done
	$(BIN)/python -m pytest -q tests/helm

# The bill of materials, as build/sbom.cdx.json; and what is known against its parts (exit code 3: nobody could be asked).
sbom: $(STAMP)
	$(BIN)/python supply/sbom.py

audit: $(STAMP)
	$(BIN)/python supply/audit.py

proto: $(STAMP)
	$(BIN)/python proto/generate.py

proto-check: $(STAMP)
	$(BIN)/python proto/generate.py --check

$(STAMP): pyproject.toml constraints.txt $(LOCK)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	test -z "$(LOCK)" || $(BIN)/python -m pip install -q --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[torch,local,dev]'
	touch $@

clean:
	rm -rf $(VENV) $(FRAMEWORKS) *.egg-info build dist
