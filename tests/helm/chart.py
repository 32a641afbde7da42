"""Render the chart by Helm's own engine, and return the result as objects."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import yaml
from helm_python import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = Path(__file__).parents[2] / "helm" / "holdfast"
OLDEST, NEWEST = "1.29.0", "1.37.0"
MONITORING, CERTIFICATES, JOBSET, KUBEFLOW = (
    "monitoring.coreos.com/v1",
    "cert-manager.io/v1",
    "jobset.x-k8s.io/v1alpha2",
    "trainer.kubeflow.org/v1alpha1",
)
RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
SECRETS = {name: f"{name}-tls" for name in ("coordinator", "agent", "operator", "viewer")}
TLS: dict[str, Any] = {"tls": {"from": "secrets", "secrets": SECRETS}}
ETCD: dict[str, Any] = {"etcd": {"endpoints": ["e0:2379", "e1:2379", "e2:2379"]}, **TLS}
JOB = {"image": "registry/mine:1", "command": ["python", "train.py", "--lr", "0.1"]}

Object = dict[str, Any]


@cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def templates(
    values: dict[str, Any], api_versions: tuple[str, ...] = (), kube: str = OLDEST
) -> dict[str, str]:
    """Every template's text. Raises helm_python.HelmError with the chart's own words."""
    # Chart.render() does not pass the cluster's APIs on; the library below it takes them.
    about = {"name": "r", "namespace": "ns", "api_versions": api_versions, "kube_version": f"v{kube}"}
    options = json.dumps(about)
    found: dict[str, str] = json.loads(
        _native.call_string("helm_render", _chart()._raw(), json.dumps(values), options)
    )
    return found


def rendered(values: dict[str, Any], api_versions: tuple[str, ...] = (), kube: str = OLDEST) -> list[Object]:
    """All objects, in the order of the templates' names."""
    texts = sorted(templates(values, api_versions, kube).items())
    return [
        each for name, text in texts if name.endswith(".yaml") for each in yaml.safe_load_all(text) if each
    ]


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    """The object of this kind, and name where there are several."""
    found = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    assert len(found) == 1, [each["metadata"]["name"] for each in found]
    return found[0]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """(name, pod spec) of every object that makes pods."""
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "Pod":
            yield name, each["spec"]
        elif each["kind"] == "JobSet":
            for part in each["spec"]["replicatedJobs"]:
                yield f"{name}/{part['name']}", part["template"]["spec"]["template"]["spec"]
        elif each["kind"] in RUNTIMES:
            for part in each["spec"]["template"]["spec"]["replicatedJobs"]:
                yield f"{name}/{part['name']}", part["template"]["spec"]["template"]["spec"]
        elif "template" in each.get("spec", {}):
            yield name, each["spec"]["template"]["spec"]


def containers(pod: Object) -> list[Object]:
    """All containers of a pod, init containers included."""
    return [*pod.get("initContainers", []), *pod["containers"]]
