"""The flags of `holdfast kubernetes render` that say where pods run, with what, and in which queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from controlplane.cli.main import main
from tests.helm.cases import POD_WORDS
from tests.helm.chart import one

if TYPE_CHECKING:
    from tests.helm.chart import Object


def _render(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[Object]:
    words = ["--image", "i:1", "--insecure", *words, "--", "python", "x.py"]
    assert main(["kubernetes", "render", *words]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.mark.parametrize(("kind", "owner"), [("Job", "x-nodes"), ("StatefulSet", "x-nodes"), ("JobSet", "x")])
def test_a_queue_of_kueue_starts_the_nodes_and_not_the_pod_that_submits(
    kind: str, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _render(["--kind", kind, "--queue", "team-a"], capsys)
    queued = [each for each in found if "kueue.x-k8s.io/queue-name" in each["metadata"]["labels"]]
    assert queued == [one(found, kind, owner)]
    assert queued[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert queued[0]["spec"].get("suspend", False) is (kind != "StatefulSet")
    assert [each for each in found if "suspend" in each["spec"]] == (queued if kind != "StatefulSet" else [])
    assert "kueue" not in json.dumps(_render(["--kind", kind], capsys))


def test_the_flags_of_the_pods(capsys: pytest.CaptureFixture[str]) -> None:
    found = _render(POD_WORDS, capsys)
    nodes = one(found, "Job", "x-nodes")
    pod = nodes["spec"]["template"]["spec"]
    assert (pod["schedulerName"], pod["hostNetwork"]) == ("gangs", True)
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"},
    ]
    (trainer,) = pod["containers"]
    assert trainer["resources"] == {
        "limits": {"memory": "64Gi"},
        "requests": {"cpu": "8", "memory": "64Gi"},
    }
    assert trainer["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    for meta in (nodes["metadata"], nodes["spec"]["template"]["metadata"]):
        assert meta["labels"]["cost"] == "1" and meta["annotations"]["owner"] == "a b=c"
    annotations = nodes["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == "agent"
    assert {each["spec"].get("ttlSecondsAfterFinished") for each in found if each["kind"] == "Job"} == {600}


def test_volumes_and_the_agents_own_resources(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--volume secret:keys:/keys:ro --volume config-map:c:/conf --volume empty:x:/room --snapshot-gi 6"
    found = _render([*words.split(), *POD_WORDS], capsys)
    pod = one(found, "Job", "x-nodes")["spec"]["template"]["spec"]
    mounted = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
    there = {
        mounted[each["name"]]["mountPath"]: (
            {**each, "name": ""},
            mounted[each["name"]].get("readOnly", False),
        )
        for each in pod["volumes"]
        if each["name"].startswith("volume-")
    }
    assert there == {
        "/keys": ({"name": "", "secret": {"secretName": "keys"}}, True),
        "/conf": ({"name": "", "configMap": {"name": "c"}}, False),
        "/room": ({"name": "", "emptyDir": {}}, False),
        "/scratch": ({"name": "", "hostPath": {"path": "/mnt/x"}}, False),
        "/data": ({"name": "", "persistentVolumeClaim": {"claimName": "sets"}}, True),
    }
    resources = pod["initContainers"][1]["resources"]
    assert resources == {"requests": {"cpu": "2", "memory": "10Gi"}, "limits": {"memory": "10Gi"}}


def test_selectors_are_as_they_were_so_that_a_release_can_be_upgraded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = _render(["--kind", "StatefulSet"], capsys)
    chosen = {"app.kubernetes.io/name", "app.kubernetes.io/component", "holdfast.dev/job"}
    assert set(one(found, "StatefulSet")["spec"]["selector"]["matchLabels"]) == chosen
    for each in found:
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "holdfast"
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "x"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cpu", "many"], "'many' is no quantity of Kubernetes"),
        (["--memory", "64GB"], "'64GB' is no quantity of Kubernetes"),
        (["--toleration", "gpu:Never"], "give KEY[=VALUE][:EFFECT]"),
        (["--capability", "CAP_IPC_LOCK"], "give it without CAP_"),
        (["--queue", "team a"], "'team a' cannot be a label"),
        (["--label", "x"], "'x' is not KEY=VALUE"),
        (["--ttl-s", "-1"], "0 or more"),
        (["--volume", "sets:/data"], "'sets:/data' is no volume: give KIND:NAME:PATH[:ro]"),
        (["--volume", "claim:sets:data"], "PATH from /"),
        (["--volume", "host:mnt:/data"], "a host's folder begins with /"),
        (["--volume", "empty:x:/tmp"], "Holdfast mounts something at /tmp itself"),
        (["--volume", "empty:x:/a", "--volume", "claim:y:/a"], "two volumes are to be at /a"),
        (["--agent-memory-gi", "0"], "1 or more"),
    ],
    ids=str,
)
def test_bad_flags_of_the_pods_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubernetes", "render", "--image", "i:1", *words, "--", "python", "x.py"]) == 2
    assert said in capsys.readouterr().err
