"""List the values with which the tests render the chart: possible ones, and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.helm.chart import CERTIFICATES, ETCD, JOB, JOBSET, KUBEFLOW, MONITORING, TLS

DIGEST = f"sha256:{'0' * 64}"
_ON = {"enabled": True}
_BUNDLED = {"bundled": _ON}
_MADE: dict[str, Any] = {"from": "certManager"}
ISSUED: dict[str, Any] = {
    "from": "certManager",
    "peerName": "peers.mine",
    "certManager": {"issuerRef": {"name": "ours", "kind": "ClusterIssuer"}, "hours": 48, "csiDriver": True},
}
_HOOK: dict[str, Any] = {"alertWebhook": {"secretName": "hook"}, "otlpHeaders": {"secretName": "collector"}}
_CERTIFIED = {"bundled": {"enabled": True, "certificate": {"enabled": True, "issuerRef": {"name": "ca"}}}}
_SELECT = {
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "x"},
}
_MORE: dict[str, Any] = {
    "env": [{"name": "SSL_CERT_DIR", "value": "/more"}],
    "volumes": [{"name": "more", "configMap": {"name": "authorities"}}],
    "volumeMounts": [{"name": "more", "mountPath": "/more", "readOnly": True}],
}
KUBERNETES: dict[str, Any] = {
    "replaceNodes": {"enabled": True, "afterS": 90, "perHour": 3, "force": False, "cordonHosts": True},
    "watchHosts": True,
    "events": True,
}
PAGE: dict[str, Any] = {
    "enabled": True,
    "port": 8443,
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "host": "holdfast.example",
        "tlsSecretName": "page-tls",
        "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
    },
}
POD_WORDS = [
    *"--cpu 8 --memory 64Gi --toleration gpu --toleration team=a:NoExecute --scheduler gangs".split(),
    *"--host-network --capability IPC_LOCK --ttl-s 600 --label cost=1 --annotation".split(),
    "owner=a b=c",
    *"--agent-cpu 2 --agent-memory-gi 4 --volume claim:sets:/data:ro --volume host:/mnt/x:/scratch".split(),
]
"""Flags of `holdfast kubernetes render` about the pods, one of each."""
FULL_JOB: dict[str, Any] = {
    **JOB,
    **_SELECT,
    "workingDir": "/src",
    "nodes": 4,
    "nodesMin": 2,
    "spareNodes": 1,
    "ranksPerNode": 8,
    "sparesPerNode": 1,
    "flags": ["--checkpoint-every=500", "--keep-last=3"],
    "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
    "readOnlyRootFilesystem": False,
    "runAsUser": 1000,
    "podSecurityContext": {"runAsGroup": 100, "fsGroup": 200, "supplementalGroups": [300]},
    "securityContext": {"seccompProfile": {"type": "Unconfined"}},
    "domainIsHost": False,
    "agent": {"settings": {"scrub_bytes_per_s": 134217728, "show_output": False, "beat_interval_s": 0.5}},
    "storage": {"url": "s3://bucket/a", "mirror": "gs://other", "secretName": "keys"},
    "serviceAccountName": "trainer",
    "priorityClassName": "high",
    "schedulerName": "gangs",
    "hostNetwork": True,
    "capabilities": ["IPC_LOCK"],
    "ttlSecondsAfterFinished": 3600,
    "queue": "team-a",
    "annotations": {"owner": "x"},
    "labels": {"cost": "1"},
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
CLAIM_JOB: dict[str, Any] = {
    **JOB,
    "nodes": 2,
    "command": ["python3", "-m", "mine.train"],
    "storage": {
        "url": "file:///checkpoints",
        "pvc": {"claimName": "c", "size": "1Ti", "storageClassName": "nfs"},
    },
}
PROGRAM_JOB: dict[str, Any] = {**JOB, "command": ["/bin/train", "-x"], "coordinators": ["c:7070"]}

RUNTIME: dict[str, Any] = {
    "image": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
    "nodes": 2,
    "spareNodes": 1,
    "nodesMin": 1,
    "ranksPerNode": 8,
    "flags": ["--checkpoint-every=500", "--standalone"],
    "storage": {"url": "s3://bucket/a", "mirror": "gs://other", "secretName": "keys"},
    "podAnnotations": {"a": "b"},
    "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
_TRUSTED = {"tls": {"agentSecret": "a", "submitSecret": "s"}}

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes" / "values.yaml"

GOOD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "the example": (yaml.safe_load(EXAMPLE.read_text()), (CERTIFICATES, MONITORING, JOBSET)),
    "external etcd": (ETCD, ()),
    "digests": ({**ETCD, "image": {"digest": DIGEST}, "imagePullSecrets": [{"name": "pull"}]}, ()),
    "one candidate": ({**ETCD, "coordinator": {"replicas": 1, "pdb": {"enabled": False}, **_SELECT}}, ()),
    "settings": (
        {**ETCD, "coordinator": {"settings": {"lease_ttl_s": 8, "node_timeout_s": 20.5}, "probe": "http"}},
        (),
    ),
    "plaintext by name, no policy": (
        {
            **ETCD,
            "tls": {"from": "insecure"},
            "networkPolicy": {"enabled": False},
            "jobs": {"plain": JOB, "set": {**JOB, "kind": "JobSet"}},
        },
        (JOBSET,),
    ),
    "certificates of an authority of its own": (
        {**ETCD, "tls": _MADE, "jobs": {"plain": JOB, "stay": {**FULL_JOB, "kind": "StatefulSet"}}},
        (CERTIFICATES,),
    ),
    "certificates of an issuer, a pod's own": (
        {**ETCD, "tls": ISSUED, "jobs": {"plain": JOB, "set": {**FULL_JOB, "kind": "JobSet"}}},
        (CERTIFICATES, JOBSET),
    ),
    "secrets of a job's own": (
        {
            **ETCD,
            "tls": {"from": "secrets", "secrets": {"coordinator": "c", "viewer": "v"}},
            "jobs": {"j": {**JOB, "tls": {"agentSecret": "a", "submitSecret": "s"}}},
        },
        (),
    ),
    "a deny list": (
        {
            **ETCD,
            "tls": {**TLS["tls"], "denyList": {"configMap": "shut-out"}},
            "jobs": {"plain": JOB, "stay": {**FULL_JOB, "kind": "StatefulSet"}},
        },
        (),
    ),
    "etcd with tls and a user": (
        {
            "etcd": {
                **ETCD["etcd"],
                "user": "u",
                "passwordSecret": {"name": "p"},
                "tls": {"secretName": "t"},
            },
            **TLS,
        },
        (),
    ),
    "etcd with an authority only": (
        {"etcd": {**ETCD["etcd"], "tls": {"secretName": "t", "certKey": ""}}, **TLS},
        (),
    ),
    "bundled etcd": ({"etcd": _BUNDLED, **TLS}, ()),
    "bundled etcd, encrypted": ({"etcd": _CERTIFIED, **TLS}, (CERTIFICATES,)),
    "more of everything for the daemons": (
        {
            "coordinator": {**_SELECT, **_MORE},
            "etcd": {"bundled": {**_CERTIFIED["bundled"], **_SELECT, **_MORE}},
            **TLS,
        },
        (CERTIFICATES,),
    ),
    "etcd with a volume and no certificate": ({"etcd": {"bundled": {"enabled": True, **_MORE}}, **TLS}, ()),
    "monitoring": (
        {
            **ETCD,
            "monitoring": {
                "serviceMonitor": _ON,
                "podMonitor": _ON,
                "prometheusRule": _ON,
                "dashboards": _ON,
            },
        },
        (MONITORING,),
    ),
    "known apis without a cluster": (
        {**ETCD, "apiVersions": [MONITORING], "monitoring": {"podMonitor": _ON}},
        (),
    ),
    "jobs of every kind": (
        {
            **ETCD,
            "jobs": {
                "plain": JOB,
                "full": FULL_JOB,
                "claim": CLAIM_JOB,
                "stay": {**FULL_JOB, "kind": "StatefulSet"},
                "set": {**FULL_JOB, "kind": "JobSet"},
            },
        },
        (JOBSET,),
    ),
    "a runtime of kubeflow": ({**ETCD, "kubeflow": {"runtimes": {"holdfast-torch": RUNTIME}}}, (KUBEFLOW,)),
    "a runtime for every namespace": (
        {
            **ETCD,
            "tls": {"from": "certManager"},
            "kubeflow": {
                "kind": "ClusterTrainingRuntime",
                "path": "/venv/bin:/usr/bin:/bin",
                "runtimes": {"plain": {"image": "i:1", **_TRUSTED}},
            },
        },
        (CERTIFICATES, KUBEFLOW),
    ),
    "a runtime with certificates of its own": (
        {**ETCD, "tls": {"from": "certManager"}, "kubeflow": {"runtimes": {"made": {"image": "i:1"}}}},
        (CERTIFICATES, KUBEFLOW),
    ),
    "a runtime in plaintext": (
        {**ETCD, "tls": {"from": "insecure"}, "kubeflow": {"runtimes": {"open": {"image": "i:1"}}}},
        (KUBEFLOW,),
    ),
    "all that is asked of kubernetes": ({**ETCD, "kubernetes": KUBERNETES}, ()),
    "the page": ({**ETCD, "page": PAGE, "coordinator": {"tokens": {"secretName": "people"}}}, ()),
    "secrets that the environment brings": (
        {**ETCD, "coordinator": {**_HOOK, "settings": {"otlp_endpoint": "http://c:4318"}}},
        (),
    ),
    "a page for everybody": (
        {**ETCD, "page": {"enabled": True, "public": True}, "networkPolicy": {"pageNamespaces": {"a": "b"}}},
        (),
    ),
    "events only": ({**ETCD, "kubernetes": {"events": True}, "serviceAccount": {"name": "mine"}}, ()),
    "jobs alone": ({"coordinator": {"enabled": False}, "jobs": {"program": PROGRAM_JOB}, **TLS}, ()),
}


def _runtime(**own: Any) -> dict[str, Any]:
    return {**ETCD, "apiVersions": [KUBEFLOW], "kubeflow": {"runtimes": {"r": {"image": "i:1", **own}}}}


def _rules(**own: Any) -> dict[str, Any]:
    return {**ETCD, "monitoring": {"prometheusRule": own}}


_TWO = {"coordinator": "c", "viewer": "v"}
_BAD_JOB = {**ETCD, "jobs": {"j": {**JOB, "kind": "Deployment"}}}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no etcd": (TLS, "etcd.endpoints is empty"),
    "an etcd without a port": ({**TLS, "etcd": {"endpoints": ["etcd.ns.svc"]}}, "names no port"),
    "nobody said who is who": ({"etcd": ETCD["etcd"]}, "tls.from is empty"),
    "nobody said who is who, jobs alone": (
        {"coordinator": {"enabled": False}, "jobs": {"program": PROGRAM_JOB}},
        "tls.from is empty",
    ),
    "a word for plaintext that is none": ({**ETCD, "tls": {"from": "off"}}, "/tls/from"),
    "certificates and no cert-manager": (
        {**ETCD, "tls": _MADE},
        "tls.from=certManager needs cert-manager.io/v1, which this cluster does not serve: install",
    ),
    "no certificate of the coordinators": (
        {**ETCD, "tls": {"from": "secrets", "secrets": {"viewer": "v"}}},
        "tls.secrets.coordinator is empty",
    ),
    "no certificate of the agents": (
        {**ETCD, "tls": {"from": "secrets", "secrets": _TWO}, "jobs": {"j": JOB}},
        "jobs.j.tls.agentSecret",
    ),
    "whose issuer": (
        {
            "coordinator": {"enabled": False},
            "tls": _MADE,
            "apiVersions": [CERTIFICATES],
            "jobs": {"program": PROGRAM_JOB},
        },
        "tls.certManager.issuerRef.name is empty and this release has no coordinator",
    ),
    "nobody to ask kubernetes as": (
        {**ETCD, "kubernetes": {"events": True}, "serviceAccount": {"create": False}},
        "kubernetes, or page.enabled, is on and there is no service account of ours",
    ),
    "two to be told": (
        {**ETCD, "coordinator": {**_HOOK, "settings": {"alert_webhook": "http://a/"}}},
        "coordinator.alertWebhook.secretName and coordinator.settings.alert_webhook exclude each other",
    ),
    "a page for nobody": ({**ETCD, "page": {"enabled": True}}, "page.enabled is on and nobody could look"),
    "a page at no host": (
        {**ETCD, "page": {"enabled": True, "public": True, "ingress": {"enabled": True}}},
        "page.ingress.host is empty",
    ),
    "hosts cordoned for nothing": (
        {**ETCD, "kubernetes": {"replaceNodes": {"cordonHosts": True}}},
        "kubernetes.replaceNodes.enabled is not",
    ),
    "a setting that has a value of its own": (
        {**ETCD, "coordinator": {"settings": {"kube_events": True}}},
        "kube_events",
    ),
    "two etcds": ({"etcd": {**ETCD["etcd"], **_BUNDLED}, **TLS}, "exclude each other"),
    "user without password": (
        {"etcd": {**ETCD["etcd"], "user": "u"}, **TLS},
        "etcd.passwordSecret.name is not",
    ),
    "certificate without issuer": (
        {"etcd": {"bundled": {"enabled": True, "certificate": _ON}}, **TLS},
        "etcd.bundled.certificate.issuerRef.name",
    ),
    "no service monitors": (
        {**ETCD, "monitoring": {"serviceMonitor": _ON}},
        "monitoring.serviceMonitor.enabled needs",
    ),
    "no pod monitors": ({**ETCD, "monitoring": {"podMonitor": _ON}}, "monitoring.podMonitor.enabled needs"),
    "no rules": ({**ETCD, "monitoring": {"prometheusRule": _ON}}, "monitoring.prometheusRule.enabled needs"),
    "no cert-manager": ({"etcd": _CERTIFIED, **TLS}, "does not serve: install cert-manager first"),
    "no jobsets": ({**ETCD, "jobs": {"j": {**JOB, "kind": "JobSet"}}}, "jobs.j.kind=JobSet needs"),
    "a word too much": ({**ETCD, "coordinater": {}}, "coordinater"),
    "a word too much below": ({**ETCD, "coordinator": {"replica": 3}}, "replica"),
    "a setting that is none": ({**ETCD, "coordinator": {"settings": {"lease_s": 3}}}, "lease_s"),
    "a setting too small": ({**ETCD, "coordinator": {"settings": {"lease_ttl_s": 1}}}, "lease_ttl_s"),
    "a setting that is the chart's": ({**ETCD, "coordinator": {"settings": {"listen": "x"}}}, "listen"),
    "a moving tag": ({**ETCD, "image": {"tag": "latest"}}, "/image/tag"),
    "half a digest": ({**ETCD, "image": {"digest": "sha256:12"}}, "/image/digest"),
    "no candidates": ({**ETCD, "coordinator": {"replicas": 0}}, "/coordinator/replicas"),
    "a variable of ours": (
        {**ETCD, "coordinator": {"env": [{"name": "POD_NAME", "value": "x"}]}},
        "coordinator.env has POD_NAME, which the chart sets itself",
    ),
    "a variable of etcd's": (
        {"etcd": {"bundled": {"enabled": True, "env": [{"name": "POD_NAME", "value": "x"}]}}, **TLS},
        "etcd.bundled.env has POD_NAME",
    ),
    "an alert's name": (_rules(alertPrefix="My Team"), "/monitoring/prometheusRule/alertPrefix"),
    "runbooks nowhere": (_rules(runbookUrl="docs/"), "/monitoring/prometheusRule/runbookUrl"),
    "an unknown kind": (_BAD_JOB, "/jobs/j/kind"),
    "a job's word too much": ({**ETCD, "jobs": {"j": {**JOB, "gpus": 1}}}, "gpus"),
    "a job's name": ({**ETCD, "jobs": {"My_Job": JOB}}, "My_Job"),
    "no image": ({**ETCD, "jobs": {"j": {"command": ["python", "x.py"]}}}, "jobs.j.image is empty"),
    "no command": ({**ETCD, "jobs": {"j": {"image": "i:1"}}}, "jobs.j.command is empty"),
    "files and no claim": (
        {**ETCD, "jobs": {"j": {**JOB, "storage": {"url": "file:///x"}}}},
        "jobs.j.storage.pvc.claimName",
    ),
    "no trainer of kubeflow": (
        {**ETCD, "kubeflow": {"runtimes": {"r": {"image": "i:1"}}}},
        "kubeflow.runtimes.r needs trainer.kubeflow.org/v1alpha1",
    ),
    "a runtime with a command": (
        _runtime(command=["torchrun"]),
        "kubeflow.runtimes.r.command cannot be kept",
    ),
    "a runtime in a queue": (_runtime(queue="q"), "kubeflow.runtimes.r.queue cannot be kept"),
    "a runtime without an image": (_runtime(image=""), "kubeflow.runtimes.r.image is empty"),
    "a runtime's flag in two words": (_runtime(flags=["--keep-last 3"]), "give each as --NAME=VALUE"),
    "a runtime's flag that has a value": (
        _runtime(flags=["--spares=1"]),
        "flags has --spares=1: it has a value",
    ),
    "a runtime that makes claims": (
        _runtime(storage={"pvc": {"claimName": "c", "size": "1Ti"}}),
        "kubeflow.runtimes.r.storage.pvc.size: a runtime makes no claims",
    ),
    "a runtime's files and no claim": (
        _runtime(storage={"url": "file:///x"}),
        "kubeflow.runtimes.r.storage.pvc.claimName",
    ),
    "certificates in no namespace": (
        {
            **ETCD,
            "apiVersions": [CERTIFICATES, KUBEFLOW],
            "tls": _MADE,
            "kubeflow": {"kind": "ClusterTrainingRuntime", "runtimes": {"r": {"image": "i:1"}}},
        },
        "kubeflow.runtimes.r.tls.agentSecret and submitSecret are empty",
    ),
    "nobody to submit to": (
        {"coordinator": {"enabled": False}, "jobs": {"j": JOB}, **TLS},
        "jobs.j.coordinators is empty",
    ),
}
