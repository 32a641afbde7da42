"""Make the pod of one node: the agent as native sidecar, the launcher in the user's image.

The chart's templates make the same (helm/holdfast/templates/_job.tpl); a test renders both and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.kubernetes.security import LOCKED, pod_security, trainer_security
from controlplane.cli.kubernetes.tls import agent_flags, agent_mounts, agent_volumes

if TYPE_CHECKING:
    from controlplane.cli.kubernetes.values import Manifest, Values

RUN_DIR, SHM_DIR, COPY_DIR = "/hf", "/hf-shm", "/holdfast"
_AS_THEY_ARE = (
    "serviceAccountName",
    "priorityClassName",
    "schedulerName",
    "nodeSelector",
    "tolerations",
    "affinity",
)
_GRACE_MARGIN_S = 10
"""How long before SIGKILL the launcher ends the ranks. The agent stops draining _AGENT_MARGIN_S before it."""
_AGENT_MARGIN_S = 15


def labels(job: str, component: str, context: Values) -> dict[str, str]:
    """The labels of a job's objects. `context`: instance and managedBy say what made them."""
    made = {"instance": context["instance"], "managed-by": context["managedBy"]}
    return selector(job, component) | {f"app.kubernetes.io/{name}": value for name, value in made.items()}


def selector(job: str, component: str) -> dict[str, str]:
    """Those of them by which pods are chosen. They never change: a StatefulSet could not be upgraded."""
    return {
        "app.kubernetes.io/name": "holdfast",
        "app.kubernetes.io/component": component,
        "holdfast.dev/job": job,
    }


def words(settings: Values) -> list[str]:
    """Settings as flags of a daemon: underscores become hyphens, a switch that is off gets `no-`."""
    flags = []
    for name, value in sorted(settings.items()):
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    return flags


def pod_spec(job: str, values: Values, context: Values, restart: str) -> Manifest:
    """The pod of one node. `context`: cluster, image, imagePullPolicy, coordinators, successPolicy, tls,
    instance, managedBy."""
    spec: Manifest = {
        "restartPolicy": restart,
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": values["terminationGracePeriodSeconds"],
        "securityContext": pod_security(values),
        "initContainers": [_copier(context), _agent(job, values, context, restart)],
        "containers": [_trainer(job, values, context, restart)],
        "volumes": _volumes(job, values, context),
    }
    for name in _AS_THEY_ARE:
        if values[name]:
            spec[name] = values[name]
    if values["hostNetwork"]:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if context.get("imagePullSecrets"):
        spec["imagePullSecrets"] = context["imagePullSecrets"]
    return spec


def _copier(context: Values) -> Manifest:
    return {
        "name": "launcher",
        "image": context["image"],
        "imagePullPolicy": context["imagePullPolicy"],
        "args": ["exec", f"--copy-to={COPY_DIR}"],
        "securityContext": LOCKED,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "launcher", "mountPath": COPY_DIR}],
    }


def _agent(job: str, values: Values, context: Values, restart: str) -> Manifest:
    agent, gi = values["agent"], values["snapshotGi"] + values["agent"]["memoryGi"]
    probe = {"httpGet": {"path": "/metrics", "port": "agent-metrics"}}
    return {
        "name": "agent",
        "image": context["image"],
        "imagePullPolicy": context["imagePullPolicy"],
        "restartPolicy": "Always",
        "args": ["agent", *_agent_flags(job, values, context, restart)],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOST_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        **_credentials(values),
        "ports": [{"name": "agent-metrics", "containerPort": agent["metricsPort"]}],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {**probe, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "securityContext": LOCKED,
        "resources": {
            "requests": {"cpu": agent["cpu"], "memory": f"{gi}Gi"},
            "limits": {"memory": f"{gi}Gi"},
        },
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_DIR},
            {"name": "snapshots", "mountPath": SHM_DIR},
            {"name": "agent-tmp", "mountPath": "/tmp"},
            *agent_mounts(job, values, context),
            *_checkpoint_mount(values),
        ],
    }


def _agent_flags(job: str, values: Values, context: Values, restart: str) -> list[str]:
    flags = [
        f"--cluster={context['cluster']}",
        f"--coordinator={','.join(values['coordinators'] or context['coordinators'])}",
        "--node=$(POD_NAME)",
        "--address=$(POD_IP)",
        f"--slots={values['ranksPerNode']}",
        f"--run-dir={RUN_DIR}",
        f"--shm-dir={SHM_DIR}",
        f"--metrics=0.0.0.0:{values['agent']['metricsPort']}",
        "--no-own-launcher",
        f"--drain-grace-s={values['terminationGracePeriodSeconds'] - _AGENT_MARGIN_S}",
        *agent_flags(job, values, context),
    ]
    flags += ["--domain=$(HOST_NAME)"] if values["domainIsHost"] else []
    if restart == "Never":
        flags += [f"--jobs={job}", *_storage_flags(values)]
    return flags + words(values["agent"]["settings"])


def _storage_flags(values: Values) -> list[str]:
    """Allow the agents of a single job its own storages only."""
    own = [url for url in (values["storage"]["url"], values["storage"]["mirror"]) if url]
    declared = "storage_allowed" in values["agent"]["settings"]
    return [f"--storage-allowed={','.join(own)}"] if values["storage"]["url"] and not declared else []


def _trainer(job: str, values: Values, context: Values, restart: str) -> Manifest:
    grace_s = values["terminationGracePeriodSeconds"] - _GRACE_MARGIN_S
    until = [f"--job={job}"] if restart == "Never" else []
    trainer: Manifest = {
        "name": "trainer",
        "image": values["image"],
        "imagePullPolicy": values["imagePullPolicy"],
        "command": [f"{COPY_DIR}/bin/holdfast", "exec", *until, f"--grace-s={grace_s}", "--"],
        "env": [
            {"name": "HOLDFAST_NODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HOLDFAST_CLUSTER", "value": context["cluster"]},
            {"name": "HOLDFAST_RUN_DIR", "value": RUN_DIR},
            {"name": "HOME", "value": "/tmp"},
            *values["env"],
        ],
        **_credentials(values),
        "securityContext": trainer_security(values),
        "volumeMounts": [
            {"name": "launcher", "mountPath": COPY_DIR, "readOnly": True},
            {"name": "run", "mountPath": RUN_DIR},
            {"name": "snapshots", "mountPath": SHM_DIR},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": "/tmp"},
            *_checkpoint_mount(values),
            *values["volumeMounts"],
        ],
    }
    trainer["command"] += values["command"]
    for name in ("workingDir", "resources"):
        if values[name]:
            trainer[name] = values[name]
    return trainer


def _credentials(values: Values) -> Manifest:
    name = values["storage"]["secretName"]
    return {"envFrom": [{"secretRef": {"name": name}}]} if name else {}


def _checkpoint_mount(values: Values) -> list[Manifest]:
    pvc = values["storage"]["pvc"]
    return [{"name": "checkpoints", "mountPath": pvc["mountPath"]}] if pvc["claimName"] else []


def _volumes(job: str, values: Values, context: Values) -> list[Manifest]:
    memory = {"snapshots": values["snapshotGi"], "shm": values["shmGi"]}
    found: list[Manifest] = [
        {"name": name, "emptyDir": {}} for name in ("launcher", "run", "agent-tmp", "tmp")
    ]
    found += [
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": f"{gi}Gi"}}
        for name, gi in memory.items()
    ]
    found += agent_volumes(job, values, context)
    claim = values["storage"]["pvc"]["claimName"]
    found += [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    return found + list(values["volumes"])
