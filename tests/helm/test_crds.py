"""Objects of the Prometheus operator and of cert-manager against the schemas of their own definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helm.cases import GOOD
from tests.helm.chart import CERTIFICATES, MONITORING, Object, rendered
from tests.helm.pod import ended

HERE = Path(__file__).parent / "crds"
pytestmark = pytest.mark.skipif(
    not (HERE / "node_modules").is_dir(), reason="the schemas come by npm: `make helm` fetches them"
)


CASES = (
    "the example",
    "monitoring",
    "bundled etcd, encrypted",
    "certificates of an authority of its own",
    "certificates of an issuer, a pod's own",
)


def foreign() -> list[Object]:
    found = [each for case in CASES for each in rendered(*GOOD[case])]
    return [each for each in found if each["apiVersion"] in (MONITORING, CERTIFICATES)]


def test_they_are_what_their_controllers_take() -> None:
    checked = ended(["node", "check.mjs"], cwd=HERE, input=json.dumps(foreign()))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert set(checked.stdout.split()) == {
        "ok",
        "ServiceMonitor",
        "PodMonitor",
        "PrometheusRule",
        "Certificate",
        "Issuer",
    }


def test_a_wrong_one_is_seen() -> None:
    objects = foreign()
    monitor = next(each for each in objects if each["kind"] == "PodMonitor")
    monitor["spec"]["podMetricsEndpoints"][0]["interval"] = "often"
    checked = ended(["node", "check.mjs"], cwd=HERE, input=json.dumps(objects))
    assert checked.returncode == 1
    assert "PodMonitor r-holdfast-agents" in checked.stdout
