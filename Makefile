# `make demo` and `make test` work from a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint alerts helm proto proto-check clean
demo: $(STAMP)
	$(BIN)/holdfast demo

test: $(STAMP) lint
	$(BIN)/python -m pytest -q

lint: $(STAMP) proto-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Kills ranks and waits for the alert, through a real Prometheus and Alertmanager (apt-get install both); a minute.
alerts: $(STAMP)
	$(BIN)/python -m tests.monitoring.live

# The chart: its README and schema are fresh, it is linted, rendered, and checked against Kubernetes' schemas.
helm: $(STAMP)
	$(BIN)/python helm/generate.py --check
	npm install --prefix tests/helm/crds --silent --no-audit --no-fund --no-package-lock || echo "no npm: CRDs are not checked"
	$(BIN)/python -m pytest -q tests/helm

proto: $(STAMP)
	$(BIN)/python proto/generate.py

proto-check: $(STAMP)
	$(BIN)/python proto/generate.py --check

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[torch,local,dev]'
	touch $@

clean:
	rm -rf $(VENV) *.egg-info build dist
