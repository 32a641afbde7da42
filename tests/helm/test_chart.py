"""The chart with Helm's own engine: linted, rendered, each manifest checked strictly, wrong values named."""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

from controlplane.access.callers import from_certificate
from controlplane.cli.flags.settings import add_settings
from controlplane.daemon.kube.leading import LABEL
from controlplane.settings import AgentSettings, CoordinatorSettings
from tests.helm.cases import BAD, DIGEST, FULL_JOB, GOOD, KUBERNETES
from tests.helm.chart import (
    CERTIFICATES,
    CHART,
    ETCD,
    JOB,
    JOBSET,
    KUBEFLOW,
    MONITORING,
    NEWEST,
    OLDEST,
    TLS,
    Object,
    containers,
    one,
    pods,
    rendered,
    templates,
)
from tests.helm.pod import ended
from tests.helm.schemas import check

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN = (MONITORING, CERTIFICATES, JOBSET, KUBEFLOW)
TRAINERS = ("trainer", "node")


@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("kube", [OLDEST, NEWEST])
def test_every_manifest_is_what_kubernetes_takes(case: str, kube: str) -> None:
    values, apis = GOOD[case]
    known = [part for manifest in rendered(values, apis, kube) for part in _known(manifest)]
    assert known
    for part in known:
        check(part, kube)


def _known(manifest: Object) -> Iterator[Object]:
    """What Kubernetes' own schemas speak of: of a JobSet, its jobs."""
    if manifest["apiVersion"] not in FOREIGN:
        yield manifest
    for part in manifest["spec"].get("replicatedJobs", []) if manifest["kind"] == "JobSet" else []:
        yield {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": part["name"]},
            **part["template"],
        }


@pytest.mark.parametrize("case", BAD)
def test_wrong_values_are_refused_by_name(case: str) -> None:
    values, said = BAD[case]
    with pytest.raises(helm_python.HelmError) as refused:
        templates(values)
    assert said in str(refused.value)


@pytest.mark.parametrize("case", ["external etcd", "bundled etcd", "jobs alone"])
def test_lint_finds_nothing(case: str) -> None:
    report = helm_python.lint(CHART, GOOD[case][0], strict=True, kube_version=f"v{OLDEST}")
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


def test_it_is_packed_without_what_does_not_belong() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(helm_python.package(CHART, destination=folder)) as archive:
            names = set(archive.getnames())
        assert {
            "holdfast/values.schema.json",
            "holdfast/files/rules/holdfast.yaml",
            "holdfast/README.md",
        } <= names
        assert not [name for name in names if name.endswith((".tgz", ".pyc", ".py"))]


@pytest.mark.parametrize("case", GOOD)
def test_every_container_is_locked(case: str) -> None:
    values, apis = GOOD[case]
    for name, pod in pods(rendered(values, apis)):
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in containers(pod):
            locked = each["securityContext"]
            assert locked["allowPrivilegeEscalation"] is False, (name, each["name"])
            asked = each["name"] in TRAINERS and pod.get("schedulerName") == FULL_JOB["schedulerName"]
            added = {"add": FULL_JOB["capabilities"]} if asked else {}
            assert locked["capabilities"] == {"drop": ["ALL"], **added}
            assert locked["readOnlyRootFilesystem"] is True or each["name"] in TRAINERS
            assert not each["image"].endswith(":latest")
            assert ":" in each["image"].rpartition("/")[2]
            assert each["resources"] if each["name"] not in TRAINERS else True


def test_the_image_goes_by_its_digest() -> None:
    objects = rendered({**ETCD, "image": {"digest": DIGEST}})
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"ghcr.io/holdfast/holdfast@{DIGEST}"


def test_candidates_are_three_and_apart_and_known_by_name() -> None:
    objects = rendered(ETCD)
    spec = one(objects, "StatefulSet")["spec"]
    assert spec["replicas"] == 3
    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    spread = {
        each["topologyKey"]: each["whenUnsatisfiable"]
        for each in spec["template"]["spec"]["topologySpreadConstraints"]
    }
    assert spread == {
        "kubernetes.io/hostname": "DoNotSchedule",
        "topology.kubernetes.io/zone": "ScheduleAnyway",
    }
    args = spec["template"]["spec"]["containers"][0]["args"]
    assert "--advertise=$(POD_NAME).r-holdfast-candidates.ns.svc:7070" in args
    headless = one(objects, "Service", "r-holdfast-candidates")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    kinds = {each["kind"] for each in objects}
    assert not kinds & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def rules(objects: list[Object], kind: str) -> set[tuple[str, str]]:
    """What a role allows, as (resource, verb)."""
    found = [each for each in objects if each["kind"] == kind]
    return {
        (r, verb)
        for role in found
        for rule in role["rules"]
        for r in rule["resources"]
        for verb in rule["verbs"]
    }


def test_roles_are_there_for_what_is_asked_and_nothing_more() -> None:
    def roles(kubernetes: dict[str, Any]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        objects = rendered({**ETCD, "kubernetes": kubernetes})
        return rules(objects, "Role"), rules(objects, "ClusterRole")

    assert roles({}) == (set(), set())
    assert roles({"events": True}) == ({("pods", "get"), ("events", "create"), ("events", "patch")}, set())
    assert roles({"replaceNodes": {"enabled": True}}) == ({("pods", "get"), ("pods", "delete")}, set())
    assert roles({"watchHosts": True}) == (set(), {("nodes", "list"), ("nodes", "watch")})
    cordons = {"enabled": True, "cordonHosts": True}
    assert roles({"replaceNodes": cordons})[1] == {("nodes", "patch")}


def test_the_page_is_the_leaders() -> None:
    values, apis = GOOD["the page"]
    objects = rendered(values, apis)
    service = one(objects, "Service", "r-holdfast-page")["spec"]
    assert service["selector"][LABEL] == "yes"
    (rule,) = one(objects, "Role")["rules"]
    assert rule["resourceNames"] == [f"r-holdfast-coordinator-{index}" for index in range(3)]
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert {"--page=0.0.0.0:8443", "--label-leader", "--tokens=/etc/holdfast/tokens/tokens"} <= set(
        container["args"]
    )
    assert "--page-public" not in container["args"]
    (other,) = one(rendered(ETCD), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert "--page=" in other["args"]


def test_a_secret_url_is_in_the_environment_and_its_port_is_open() -> None:
    objects = rendered(GOOD["secrets that the environment brings"][0])
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    secret = {
        each["name"]: each["valueFrom"].get("secretKeyRef")
        for each in container["env"]
        if "valueFrom" in each
    }
    assert secret["HOLDFAST_ALERT_WEBHOOK"] == {"name": "hook", "key": "url"}
    assert secret["OTEL_EXPORTER_OTLP_HEADERS"] == {"name": "collector", "key": "headers"}
    assert not [word for word in container["args"] if "alert-webhook" in word]
    assert {443, 4318} <= open_ports(objects)
    plain = {**ETCD, "coordinator": {"settings": {"alert_webhook": "http://alerts.ns/api/v2/alerts"}}}
    assert 80 in open_ports(rendered(plain)) and not {80, 443} & open_ports(rendered(ETCD))


def open_ports(objects: list[Object]) -> set[int]:
    """What the coordinators may call."""
    rules = one(objects, "NetworkPolicy")["spec"]["egress"]
    return {each["port"] for rule in rules for each in rule.get("ports", [])}


def test_the_token_is_mounted_where_the_api_is_asked() -> None:
    for kubernetes, wanted in (({}, False), (KUBERNETES, True)):
        objects = rendered({**ETCD, "kubernetes": kubernetes})
        pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert (CoordinatorSettings().kube_account in mounts) is wanted
        account = [each["projected"] for each in pod["volumes"] if each["name"] == "account"]
        files = {item["path"] for each in account for part in each["sources"] for item in _items(part)}
        assert files == ({"token", "ca.crt", "namespace"} if wanted else set())
        assert ({443, 6443} <= open_ports(objects)) is wanted


def _items(source: Object) -> list[Object]:
    (content,) = source.values()
    return content.get("items", [content])  # type: ignore[no-any-return]


def test_the_checksum_follows_the_configuration() -> None:
    def checksum(values: dict[str, Any]) -> str:
        meta = one(rendered({**ETCD, **values}), "StatefulSet")["spec"]["template"]["metadata"]
        return str(meta["annotations"]["checksum/config"])

    same = checksum({})
    assert checksum({"coordinator": {"replicas": 5}}) == same
    assert checksum({"coordinator": {"settings": {"lease_ttl_s": 9}}}) != same
    assert checksum({"etcd": {"endpoints": ["other:2379"]}}) != same


@pytest.mark.parametrize("case", GOOD)
def test_the_daemons_take_the_flags_they_are_given(case: str) -> None:
    """Every flag of every pod is a setting of its daemon, and can be parsed as such."""
    values, apis = GOOD[case]
    kinds = {"coordinator": CoordinatorSettings, "agent": AgentSettings}
    for _, pod in pods(rendered(values, apis)):
        for each in containers(pod):
            kind = kinds.get(each.get("args", [""])[0])
            if kind is not None:
                parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
                add_settings(parser, kind)
                assert parser.parse_args(each["args"][1:])


def test_a_probe_is_switched_by_its_value() -> None:
    for probe, field in (("http", "httpGet"), ("grpc", "grpc")):
        objects = rendered({**ETCD, "coordinator": {"probe": probe}})
        container = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
        assert all(field in container[f"{name}Probe"] for name in ("startup", "liveness", "readiness"))


def test_the_coordinators_show_a_certificate_and_ask_for_one() -> None:
    for tls, apis, secret in (
        (TLS["tls"], (), "coordinator-tls"),
        ({"from": "certManager"}, (CERTIFICATES,), "r-holdfast-coordinator-tls"),
    ):
        objects = rendered({**ETCD, "tls": tls}, apis)
        pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        flags = {f"--tls-{name}=/etc/holdfast/tls/{file}" for name, file in _FILES.items()}
        assert flags | {"--health=0.0.0.0:7072"} <= set(container["args"])
        assert "--insecure" not in container["args"]
        assert container["livenessProbe"]["grpc"] == {"port": 7072}
        secrets = {each["name"]: each.get("secret", {}).get("secretName") for each in pod["volumes"]}
        assert secrets["tls"] == secret
        assert secrets["viewer"] == secret.replace("coordinator", "viewer")
        shown = {each["name"]: each.get("value") for each in container["env"]}
        assert shown["HOLDFAST_TLS_CERT"] == "/etc/holdfast/viewer/tls.crt"
        assert shown["HOLDFAST_COORDINATOR"].count(":7070") == 3


def test_the_deny_list_is_where_everybody_finds_it() -> None:
    denied = {"denyList": {"configMap": "shut-out", "key": "who"}}
    for tls, tokens in ((TLS["tls"], {}), ({"from": "insecure"}, {"tokens": {"secretName": "t"}})):
        values = {**ETCD, "tls": {**tls, **denied}, "coordinator": tokens}
        pod = one(rendered(values), "StatefulSet")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert "--deny-list=/etc/holdfast/denied/who" in container["args"]
        assert "/etc/holdfast/denied" in [each["mountPath"] for each in container["volumeMounts"]]
        (volume,) = [each for each in pod["volumes"] if each["name"] == "denied"]
        assert volume["configMap"]["name"] == "shut-out"
    with pytest.raises(helm_python.HelmError, match="has no effect where callers are not authenticated"):
        rendered({**ETCD, "tls": {"from": "insecure", **denied}})


_FILES = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}


def test_certificates_say_what_their_holders_may() -> None:
    values = {
        **ETCD,
        "tls": {"from": "certManager"},
        "jobs": {"train": JOB, "stay": {**JOB, "kind": "StatefulSet"}},
    }
    objects = rendered(values, (CERTIFICATES,))
    made = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Certificate"}
    assert made["r-holdfast-coordinator"]["usages"] == ["server auth"]
    assert "*.r-holdfast-candidates.ns.svc" in made["r-holdfast-coordinator"]["dnsNames"]
    told = {name: (spec.get("uris"), spec["usages"]) for name, spec in made.items() if "uris" in spec}
    both, client = ["server auth", "client auth"], ["client auth"]
    assert told == {
        "r-holdfast-viewer": (["holdfast://default/viewer/r-holdfast"], client),
        "r-holdfast-operator": (["holdfast://default/operator/r-holdfast"], client),
        "train-agent": (["holdfast://default/agent/train-nodes-*?job=train"], both),
        "train-submit": (["holdfast://default/operator/train-submit?job=train"], client),
        "stay-agent": (["holdfast://default/agent/stay-nodes-*"], both),
        "stay-submit": (["holdfast://default/operator/stay-submit?job=stay"], client),
    }
    for spec in made.values():
        for uri in spec.get("uris", []):
            assert from_certificate("default", {"peer_uri": [uri.encode()]}).name


def test_plaintext_is_asked_for_by_name_everywhere() -> None:
    values, apis = GOOD["plaintext by name, no policy"]
    for name, pod in pods(rendered(values, apis)):
        called = [
            each
            for each in containers(pod)
            if each.get("args", [""])[0] in ("coordinator", "agent", "submit", "status")
        ]
        assert all("--insecure" in each["args"] for each in called), name
        assert not [each for each in pod.get("volumes", []) if "tls" in each["name"]]


def test_etcd_with_tls_is_reached_with_our_certificate() -> None:
    values, _ = GOOD["etcd with tls and a user"]
    pod = one(rendered(values), "StatefulSet")["spec"]["template"]["spec"]
    assert {
        "--etcd=e0:2379,e1:2379,e2:2379",
        "--etcd-ca=/etc/holdfast/etcd/ca.crt",
        "--etcd-cert=/etc/holdfast/etcd/tls.crt",
        "--etcd-key=/etc/holdfast/etcd/tls.key",
        "--etcd-user=u",
        "--etcd-password-file=/etc/holdfast/password/password",
    } <= set(pod["containers"][0]["args"])
    assert {each.get("secret", {}).get("secretName") for each in pod["volumes"]} >= {"t", "p"}


def test_the_bundled_etcd_is_three_members_that_know_each_other() -> None:
    values, apis = GOOD["bundled etcd, encrypted"]
    objects = rendered(values, apis)
    command = one(objects, "StatefulSet", "r-holdfast-etcd")["spec"]["template"]["spec"]["containers"][0][
        "command"
    ]
    initial = next(word for word in command if word.startswith("--initial-cluster="))
    assert initial.count("https://r-holdfast-etcd-") == 3
    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(command)
    assert "*.r-holdfast-etcd.ns.svc" in one(objects, "Certificate")["spec"]["dnsNames"]
    coordinator = one(objects, "StatefulSet", "r-holdfast-coordinator")["spec"]["template"]["spec"]
    assert "--etcd-ca=/etc/holdfast/etcd/ca.crt" in coordinator["containers"][0]["args"]


def test_the_network_lets_in_who_must() -> None:
    policy = one(rendered(ETCD), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {"ports": [{"port": 2379}]} in policy["egress"]
    assert all("from" in each for each in policy["ingress"])


def test_the_rules_are_the_file() -> None:
    objects = rendered({**ETCD, "monitoring": {"prometheusRule": {"enabled": True}}}, (MONITORING,))
    rules = yaml.safe_load((CHART / "files" / "rules" / "holdfast.yaml").read_text())
    assert one(objects, "PrometheusRule")["spec"] == rules


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool comes with Prometheus")
def test_promtool_takes_the_rules_that_are_rendered() -> None:
    objects = rendered({**ETCD, "monitoring": {"prometheusRule": {"enabled": True}}}, (MONITORING,))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(one(objects, "PrometheusRule")["spec"], file)
        checked = ended(["promtool", "check", "rules", file.name])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "SUCCESS" in checked.stdout


def test_the_dashboards_come_whole() -> None:
    objects = rendered({**ETCD, "monitoring": {"dashboards": {"enabled": True}}})
    found = [each for each in objects if each["kind"] == "ConfigMap"]
    assert len(found) == len(list((CHART / "files" / "dashboards").glob("*.json"))) >= 3
    for each in found:
        ((name, text),) = each["data"].items()
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(text) == json.loads((CHART / "files" / "dashboards" / name).read_text())


def test_the_notes_say_what_the_bundled_etcd_is() -> None:
    notes = templates({"etcd": {"bundled": {"enabled": True}}, **TLS})["holdfast/templates/NOTES.txt"]
    assert "for trials" in notes
