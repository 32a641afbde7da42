# `make demo` and `make test` work from a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Versions with hashes, for every platform. `make LOCK= ...` does without it, where an index lacks some of its files.
LOCK ?= requirements.lock

# Tests run in so many processes: half of the suite waits for timeouts of real ones.
WORKERS ?= 3
# One that takes too long is interrupted, and says what failed.
PYTEST = timeout --foreground --signal=INT --kill-after=60 $(1) $(BIN)/python -m pytest -q

.PHONY: demo test lint alerts page helm proto proto-check sbom audit clean
demo: $(STAMP)
	$(BIN)/holdfast demo

# What failed among the others is run once more, by itself, and both outcomes are printed: a deadline may be missed
# on a crowded machine; what is missed by itself too fails the suite.
test: $(STAMP) lint
	$(call PYTEST,4500) -n $(WORKERS) --dist worksteal --durations 25 || \
		{ test $$? = 1 && $(call PYTEST,600) --last-failed --last-failed-no-failures none; }

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

# The chart: its README and schema are fresh, it is linted, rendered, and checked against Kubernetes' schemas.
helm: $(STAMP)
	$(BIN)/python helm/generate.py --check
	npm install --prefix tests/helm/crds --silent --no-audit --no-fund --no-package-lock || echo "no npm: CRDs are not checked"
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
	rm -rf $(VENV) *.egg-info build dist
