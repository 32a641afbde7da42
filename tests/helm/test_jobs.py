"""Training jobs: the pod of a node, and that `holdfast kubernetes render` says what the chart says."""

from __future__ import annotations

import copy
import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controlplane.cli.kubernetes.job import DEFAULTS, objects
from controlplane.cli.kubernetes.tls import INSECURE
from controlplane.cli.main import main
from holdfast.launch.errand import JOB_FAILED
from tests.helm.cases import CLAIM_JOB, FULL_JOB, ISSUED, POD_WORDS, PROGRAM_JOB
from tests.helm.chart import (
    CERTIFICATES,
    CHART,
    ETCD,
    JOB,
    JOBSET,
    NEWEST,
    OLDEST,
    SECRETS,
    Object,
    one,
    rendered,
)
from tests.helm.schemas import check

if TYPE_CHECKING:
    from controlplane.cli.kubernetes.values import Values

COORDINATORS = [f"r-holdfast-coordinator-{index}.r-holdfast-candidates.ns.svc:7070" for index in range(3)]
CONTEXT = {
    "instance": "r",
    "managedBy": "Helm",
    "cluster": "default",
    "image": "ghcr.io/holdfast/holdfast:0.1.0",
    "imagePullPolicy": "IfNotPresent",
    "coordinators": COORDINATORS,
    "tls": {
        "from": "secrets",
        "peerName": "agents.holdfast",
        "csiDriver": False,
        "agentSecret": "agent-tls",
        "submitSecret": "operator-tls",
        "denyMap": "",
        "denyKey": "denied",
    },
}


def merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(base)
    for name, value in own.items():
        both = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = merged(found[name], value) if both else value
    return found


def job_objects(values: dict[str, Any], kube: str = NEWEST) -> list[Object]:
    found = rendered({**ETCD, "jobs": {"j": values}}, (JOBSET,), kube)
    return [each for each in found if each["metadata"]["labels"].get("holdfast.dev/job") == "j"]


@pytest.mark.parametrize("kind", ["Job", "StatefulSet", "JobSet"])
@pytest.mark.parametrize(
    "values", [JOB, FULL_JOB, CLAIM_JOB, PROGRAM_JOB], ids=["plain", "full", "claim", "program"]
)
def test_the_chart_and_the_command_say_the_same(kind: str, values: dict[str, Any]) -> None:
    own = {**values, "kind": kind}
    for kube, known in ((OLDEST, False), (NEWEST, True)):
        context = {**CONTEXT, "successPolicy": known}
        assert job_objects(own, kube) == objects("j", merged(DEFAULTS, own), context)


_MADE = {"hours": 24, "agentSecret": "", "submitSecret": "", "denyMap": "", "denyKey": "denied"}
_OWN = {"name": "r-holdfast-authority", "kind": "Issuer", "group": "cert-manager.io"}
TRUSTED: dict[str, tuple[Values, Values]] = {
    "insecure": ({"from": "insecure"}, INSECURE),
    "own authority": (
        {"from": "certManager"},
        {"from": "certManager", "peerName": "agents.holdfast", "csiDriver": False, "issuer": _OWN, **_MADE},
    ),
    "a certificate per pod": (
        ISSUED,
        {
            "from": "certManager",
            "peerName": "peers.mine",
            "csiDriver": True,
            "issuer": {"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"},
            **_MADE,
            "hours": 48,
        },
    ),
    "a deny list": (
        {"from": "certManager", "denyList": {"configMap": "shut-out", "key": "who"}},
        {
            **{"from": "certManager", "peerName": "agents.holdfast", "csiDriver": False, "issuer": _OWN},
            **_MADE,
            "denyMap": "shut-out",
            "denyKey": "who",
        },
    ),
}


@pytest.mark.parametrize("kind", ["Job", "StatefulSet", "JobSet"])
@pytest.mark.parametrize("own", [{}, {"tls": {"agentSecret": "a"}}, {"tls": {"submitSecret": "s"}}], ids=str)
@pytest.mark.parametrize("trust", TRUSTED)
def test_both_say_the_same_of_certificates(kind: str, own: Values, trust: str) -> None:
    tls, told = TRUSTED[trust]
    values = {**JOB, "kind": kind, **own}
    chart = rendered({**ETCD, "tls": tls, "jobs": {"j": values}}, (JOBSET, CERTIFICATES), NEWEST)
    found = [each for each in chart if each["metadata"]["labels"].get("holdfast.dev/job") == "j"]
    context = {**CONTEXT, "successPolicy": True, "tls": told}
    assert found == objects("j", merged(DEFAULTS, values), context)


@pytest.mark.parametrize(
    ("own", "flag"),
    [
        ({"storage": {"url": "s3://b/j", "mirror": "gs://m"}}, ["--storage-allowed=s3://b/j,gs://m"]),
        ({"storage": {"url": "s3://b/j"}, "kind": "JobSet"}, ["--storage-allowed=s3://b/j"]),
        ({"storage": {"url": "s3://b/j"}, "kind": "StatefulSet"}, []),
        ({}, []),
        (
            {"storage": {"url": "s3://b/j"}, "agent": {"settings": {"storage_allowed": "s3://b"}}},
            ["--storage-allowed=s3://b"],
        ),
    ],
    ids=str,
)
def test_the_agents_of_a_job_open_its_storages_only(own: Values, flag: list[str]) -> None:
    values = {**JOB, "kind": "Job", **own}
    made = job_objects(values, NEWEST)
    assert made == objects("j", merged(DEFAULTS, values), {**CONTEXT, "successPolicy": True})
    told = [word for word in _agent_words(made) if word.startswith("--storage-allowed")]
    assert told == flag


def _agent_words(found: list[dict[str, Any]]) -> list[str]:
    text = str(found)
    return re.findall(r"--[a-z-]+=[^'\"]*", text[text.index("'agent', '--cluster") :])


def test_only_the_agent_holds_the_agents_key() -> None:
    """Not the user's script, in whose container anything may run."""
    pod = one(job_objects(FULL_JOB), "Job", "j-nodes")["spec"]["template"]["spec"]
    copier, agent = pod["initContainers"]
    mounts = {each["name"] for part in (copier, *pod["containers"]) for each in part["volumeMounts"]}
    assert "tls" not in mounts
    assert {"name": "tls", "mountPath": "/etc/holdfast/tls", "readOnly": True} in agent["volumeMounts"]
    assert {
        "--tls-cert=/etc/holdfast/tls/tls.crt",
        "--tls-key=/etc/holdfast/tls/tls.key",
        "--tls-ca=/etc/holdfast/tls/ca.crt",
        "--tls-peer-name=agents.holdfast",
    } <= set(agent["args"])


def test_the_agent_gives_up_before_the_launcher_and_both_before_kubernetes() -> None:
    pod = one(job_objects({**JOB, "terminationGracePeriodSeconds": 60}), "Job", "j-nodes")["spec"]["template"]
    (trainer,) = pod["spec"]["containers"]
    assert "--drain-grace-s=45" in pod["spec"]["initContainers"][1]["args"]
    assert "--grace-s=50" in trainer["command"]


def test_the_defaults_are_the_charts() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["jobDefaults"] == DEFAULTS


def test_the_agent_is_a_sidecar_and_the_launcher_is_copied() -> None:
    pod = one(job_objects(FULL_JOB), "Job", "j-nodes")["spec"]["template"]["spec"]
    launcher, agent = pod["initContainers"]
    (trainer,) = pod["containers"]
    assert launcher["args"] == ["exec", "--copy-to=/holdfast"]
    assert "restartPolicy" not in launcher
    assert agent["restartPolicy"] == "Always"
    assert "--no-own-launcher" in agent["args"]
    assert shlex.join(trainer["command"]) == (
        "/holdfast/bin/holdfast exec --job=j --grace-s=110 -- python train.py --lr 0.1"
    )
    assert pod["shareProcessNamespace"] is True  # the rank server checks who a rank is by its process id
    assert pod["terminationGracePeriodSeconds"] == 120


def test_what_both_containers_share() -> None:
    pod = one(job_objects({**JOB, "snapshotGi": 24, "shmGi": 4}), "Job", "j-nodes")["spec"]["template"][
        "spec"
    ]
    _, agent = pod["initContainers"]
    (trainer,) = pod["containers"]
    mounts = [{each["name"]: each["mountPath"] for each in part["volumeMounts"]} for part in (agent, trainer)]
    for name in ("run", "snapshots"):
        assert mounts[0][name] == mounts[1][name]
    assert mounts[1]["shm"] == "/dev/shm"
    volumes = {each["name"]: each.get("emptyDir") for each in pod["volumes"]}
    assert volumes["snapshots"] == {"medium": "Memory", "sizeLimit": "24Gi"}
    assert volumes["shm"] == {"medium": "Memory", "sizeLimit": "4Gi"}
    assert volumes["run"] == {}
    assert agent["resources"]["limits"]["memory"] == "26Gi"  # what it maps counts against its own limit


def test_sockets_of_the_longest_names_fit() -> None:
    """Pods are named by Kubernetes: job, index, five letters. A socket's path has 107 bytes at most."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    cluster, job = "c" * 30, "j" * 38
    assert re.fullmatch(schema["cluster"]["pattern"], cluster)
    assert not re.fullmatch(schema["cluster"]["pattern"], cluster + "c")
    assert re.fullmatch(schema["jobs"]["propertyNames"]["pattern"], job)
    assert not re.fullmatch(schema["jobs"]["propertyNames"]["pattern"], job + "j")
    for pod in (f"{job}-nodes-9999-abcde", f"{job}-nodes-0-99-abcde", f"{job}-nodes-9999"):
        assert len(f"/hf/{cluster}/{pod}/launcher.sock") <= 107


def test_a_failed_job_is_not_begun_again() -> None:
    spec = one(job_objects(JOB), "Job", "j-nodes")["spec"]
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 1}]}
    assert "successPolicy" not in one(job_objects(JOB, OLDEST), "Job", "j-nodes")["spec"]
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [JOB_FAILED]


def test_render_prints_what_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "kubernetes",
        "render",
        "--image",
        "i:1",
        "--nodes",
        "4",
        "--spare-nodes",
        "1",
        "--nproc-per-node",
        "8",
    ]
    words += [
        "--gpus",
        "8",
        "--storage",
        "s3://b/c",
        "--env",
        "A=b=c",
        "--insecure",
        "--",
        "python",
        "my_train.py",
        "--lr",
        "1",
    ]
    assert main(words) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    for manifest in found:
        check(manifest, NEWEST)
    assert main([*words[:2], "--kubernetes", "1.29", *words[2:]]) == 0
    for manifest in yaml.safe_load_all(capsys.readouterr().out):
        check(manifest, OLDEST)
    nodes = one(found, "Job", "my-train-nodes")["spec"]
    assert nodes["completions"] == 5
    trainer = nodes["template"]["spec"]["containers"][0]
    assert trainer["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert {"name": "A", "value": "b=c"} in trainer["env"]
    submit = one(found, "Job", "my-train-submit")["spec"]["template"]["spec"]["containers"][0]
    assert submit["args"][-3:] == ["my_train.py", "--lr", "1"]


@pytest.mark.parametrize(
    "trust",
    [
        ["--insecure"],
        ["--tls-agent-secret=a", "--tls-submit-secret=s"],
        ["--tls-issuer=ours"],
        ["--tls-issuer=ClusterIssuer/ours", "--tls-csi", "--tls-peer-name=p.q"],
        ["--tls-issuer=ours", "--tls-deny-list=shut-out"],
    ],
    ids=" ".join,
)
def test_the_values_that_it_prints_give_the_same_job(
    trust: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--image", "i:1", "--nodes", "2", "--kind", "StatefulSet", *trust, *POD_WORDS]
    words += ["--", "python", "-m", "mine.train"]
    assert main(["kubernetes", "render", *words]) == 0
    expected = list(yaml.safe_load_all(capsys.readouterr().out))
    assert main(["kubernetes", "render", "-o", "values", *words]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    printed["tls"] = {"secrets": SECRETS, **printed["tls"]}
    chart = rendered({**ETCD, **printed}, (CERTIFICATES,), NEWEST)
    assert [each for each in chart if "holdfast.dev/job" in each["metadata"]["labels"]] == _from_helm(
        expected
    )


def _from_helm(objects: list[Object]) -> list[Object]:
    """These objects with the labels of a release: what made them is the only difference."""
    text = json.dumps(objects).replace(
        '"app.kubernetes.io/managed-by": "holdfast"', '"app.kubernetes.io/managed-by": "Helm"'
    )
    text = re.sub(r'"app.kubernetes.io/instance": "[^"]+"', '"app.kubernetes.io/instance": "r"', text)
    found: list[Object] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a verb is missing"),
        (["rendr"], "render"),
        (["render", "--image", "i:1"], "no command given"),
        (["render", "--insecure", "--", "python", "x.py"], "has no image"),
        (["render", "--image", "i:1", "--", "python", "x.py"], "no source of certificates is given"),
        (
            ["render", "--image", "i:1", "--tls-agent-secret=a", "--", "python", "x.py"],
            "no source of certificates is given",
        ),
        (
            ["render", "--image", "i:1", "--insecure", "--tls-issuer=a", "--", "python", "x.py"],
            "cannot be combined with certificates",
        ),
        (["render", "--kubernetes", "1.28", "--", "python", "x.py"], "native sidecars need 1.29"),
        (
            ["render", "--image", "i:1", "--name", "My_Job", "--", "python", "x.py"],
            "--name 'My_Job' is not allowed",
        ),
        (["render", "--image", "i:1", "--env", "A", "--", "python", "x.py"], "--env 'A' is not NAME=VALUE"),
        (["render", "--image", "i:1", "--nodes", "0", "--", "python", "x.py"], "give 1 or more"),
        (
            ["render", "--image", "i:1", "--insecure", "--storage", "file:///c", "--", "python", "x.py"],
            "no claim is mounted",
        ),
        (
            [
                "render",
                "--image",
                "i:1",
                "--insecure",
                "--holdfast-image",
                "h:latest",
                "--",
                "python",
                "x.py",
            ],
            "give a digest",
        ),
    ],
)
def test_what_cannot_be_rendered_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubernetes", *words]) != 0
    assert said in capsys.readouterr().err


def test_a_leader_reaches_the_agents_that_it_asks_whether_they_live() -> None:
    """Where it did not, the brake for a mass loss would find every silent node unreachable."""
    leads = {"app.kubernetes.io/name": "holdfast", "app.kubernetes.io/component": "coordinator"}
    near, far = (
        JOB,
        {**JOB, "coordinators": ["c-0.cs.else.svc:7070", "c-1.cs.else.svc:7070", "10.0.0.1:7070"]},
    )
    found = rendered({**ETCD, "jobs": {"near": near, "far": far}})
    assert leads.items() <= one(found, "StatefulSet")["spec"]["template"]["metadata"]["labels"].items()
    for job, namespace in (("near", "ns"), ("far", "else")):
        rules = one(found, "NetworkPolicy", job)["spec"]["ingress"]
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        peer = {"namespaceSelector": chosen, "podSelector": {"matchLabels": leads}}
        assert {"from": [peer]} in rules
    away = rendered({**ETCD, "networkPolicy": {"clientNamespaces": {"team": "a"}}})
    egress = one(away, "NetworkPolicy")["spec"]["egress"]
    assert any(
        each.get("namespaceSelector") == {"matchLabels": {"team": "a"}}
        for rule in egress
        for each in rule.get("to", [])
    )
