"""Runtimes of Kubeflow Trainer: held to its own definitions; the parts of the pod; what torchrun reads."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from controlplane.access.callers import from_certificate
from controlplane.cli.flags.parser import Parser
from controlplane.cli.flags.pet import variables
from controlplane.cli.main import tree
from controlplane.cli.torchrun import COMMANDS, ORDERS, TrainPod
from tests.helm.cases import GOOD
from tests.helm.chart import KUBEFLOW, NEWEST, OLDEST, RUNTIMES, Object, one, rendered
from tests.helm.schemas import check

CRDS = Path(__file__).parent / "crds" / "node_modules" / "kubeflow"
PAGE = Path(__file__).parents[2] / "docs" / "kubeflow.md"
CASES = [case for case in GOOD if "runtime" in case]
needs_crds = pytest.mark.skipif(
    not CRDS.is_dir(), reason="Kubeflow's definitions come from its repository: `make helm` fetches them"
)


def runtimes(case: str, kube: str = NEWEST) -> list[Object]:
    return [each for each in rendered(*GOOD[case], kube) if each["kind"] in RUNTIMES]


def validate(manifest: Object) -> None:
    """Raise jsonschema.ValidationError unless Kubeflow's own definition takes every field."""
    path = CRDS / f"trainer.kubeflow.org_{manifest['kind'].lower()}s.yaml"
    (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.Draft202012Validator(schema).validate(manifest)


def strict(schema: Any) -> Any:
    """The schema, without unknown fields: the API server would drop them."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found["additionalProperties"] = False
    return found


@needs_crds
@pytest.mark.parametrize("case", CASES)
def test_kubeflows_own_definitions_take_them(case: str) -> None:
    (runtime,) = runtimes(case)
    validate(runtime)


@needs_crds
def test_a_wrong_one_is_seen() -> None:
    (runtime,) = runtimes(CASES[0])
    wrongs = [copy.deepcopy(runtime) for _ in range(3)]
    wrongs[0]["spec"]["mlPolicy"]["numNodes"] = "two"
    wrongs[1]["spec"]["replicas"] = 1
    del wrongs[2]["spec"]["template"]["spec"]["replicatedJobs"][0]["name"]
    for wrong in wrongs:
        with pytest.raises(jsonschema.ValidationError):
            validate(wrong)


def trainjobs() -> list[Object]:
    """The TrainJobs of the page."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = [each for text in blocks for each in yaml.safe_load_all(text)]
    return [each for each in found if each.get("kind") == "TrainJob"]


@needs_crds
def test_the_trainjobs_of_the_page_are_taken_too() -> None:
    assert trainjobs()
    for each in trainjobs():
        validate(each)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kube", [OLDEST, NEWEST])
def test_the_job_of_the_nodes_is_what_kubernetes_takes(case: str, kube: str) -> None:
    (runtime,) = runtimes(case, kube)
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    labels = node["template"]["metadata"]["labels"]
    assert labels == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"apiVersion": "batch/v1", "kind": "Job", **node["template"]}
    check({**job, "metadata": {"name": "x", "labels": labels}}, kube)
    assert ("successPolicy" in job["spec"]) is (kube == NEWEST)


def pod(case: str) -> Object:
    (runtime,) = runtimes(case)
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    found: Object = node["template"]["spec"]["template"]["spec"]
    return found


def test_the_pod_is_that_of_a_job_but_for_its_name_and_what_it_runs() -> None:
    found = pod("a runtime of kubeflow")
    (node,) = found["containers"]
    launcher, agent, submit = found["initContainers"]
    assert node["name"] == "node" and "command" not in node and "args" not in node
    assert launcher["args"] == ["exec", "--copy-to=/holdfast"]
    assert {"--jobs=$(HOLDFAST_JOB)", "--slots=8", "--no-own-launcher"} <= set(agent["args"])
    assert agent["restartPolicy"] == submit["restartPolicy"] == "Always"
    for each in (agent, submit, node):
        names = [variable["name"] for variable in each["env"]]
        # Kubernetes puts variables into others only in this order.
        assert names.index("HOLDFAST_JOB") > max(names.index("TRAINJOB"), names.index("NAMESPACE"))
        assert len(names) == len(set(names))
    assert node["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert {"name": "data", "mountPath": "/data"} in node["volumeMounts"]


def test_only_the_container_that_submits_holds_the_key_for_it() -> None:
    found = pod("a runtime of kubeflow")
    holders = [
        each["name"]
        for each in (*found["initContainers"], *found["containers"])
        if any(mount["name"] == "submit-tls" for mount in each["volumeMounts"])
    ]
    assert holders == ["submit"]
    secrets = {each["name"]: each["secret"]["secretName"] for each in found["volumes"] if "secret" in each}
    assert secrets == {"tls": "agent-tls", "submit-tls": "operator-tls"}


@pytest.mark.parametrize("case", CASES)
def test_our_parsers_take_what_the_containers_are_given(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pod(case)
    _, agent, submit = found["initContainers"]
    tree().parse_args([word.replace("$(HOLDFAST_JOB)", "ns.t") for word in agent["args"]])
    ordered = tree().parse_args([word.replace("$(HOLDFAST_JOB)", "ns.t") for word in submit["args"]])
    (node,) = found["containers"]
    told = {each["name"]: each["value"] for each in node["env"] if "value" in each}
    read = TrainPod.read({**told, "HOLDFAST_JOB": ordered.rdzv_id})
    assert read is not None and ordered.order == str(read.run_dir / ORDERS)
    assert told["PATH"].startswith("/holdfast/bin:/")
    monkeypatch.setenv("HOLDFAST_JOB", "ns.t")  # torchrun's flags are those of a pod where it is set
    parser = Parser(prog="torchrun")
    parser.become(COMMANDS["torchrun"])
    values = parser.parse_args([*variables(parser, told), "train.py"])
    if case == "a runtime of kubeflow":
        assert (read.slots, read.spare_nodes, read.nodes_min, read.grace_s) == (8, 1, 1, "110")
        assert (values.checkpoint_every, values.storage, values.mirror) == (
            500,
            "s3://bucket/a",
            "gs://other",
        )
        assert values.standalone is True


def test_certificates_speak_for_any_trainjob() -> None:
    objects = rendered(*GOOD["a runtime with certificates of its own"])
    names = {"made-agent": "agent *", "made-submit": "operator made-submit"}
    for name, holder in names.items():
        (uri,) = one(objects, "Certificate", name)["spec"]["uris"]
        caller = from_certificate("default", {"peer_uri": [uri.encode()]})
        assert str(caller) == holder and caller.may_touch("team-a.train")


def test_a_runtime_of_this_namespace_has_a_network_policy() -> None:
    objects = rendered(*GOOD["a runtime of kubeflow"])
    chosen = one(objects, "NetworkPolicy", "holdfast-torch")["spec"]["podSelector"]["matchLabels"]
    (runtime,) = runtimes("a runtime of kubeflow")
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert chosen.items() <= node["template"]["spec"]["template"]["metadata"]["labels"].items()
    assert runtime["apiVersion"] == KUBEFLOW
