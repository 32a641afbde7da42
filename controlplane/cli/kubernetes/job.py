"""Make all objects of one training job: its nodes, the pod that submits it, its network policy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from controlplane.cli.errors import UsageError
from controlplane.cli.kubernetes import tls
from controlplane.cli.kubernetes.pod import labels, pod_spec, selector
from controlplane.cli.kubernetes.security import LOCKED, pod_security
from holdfast.launch.errand import JOB_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.cli.kubernetes.values import Manifest, Values

DEFAULTS: Values = {
    "kind": "Job",
    "image": "",
    "imagePullPolicy": "IfNotPresent",
    "command": [],
    "workingDir": "",
    "nodes": 1,
    "nodesMin": 0,
    "spareNodes": 0,
    "ranksPerNode": 1,
    "sparesPerNode": 0,
    "flags": [],
    "coordinators": [],
    "snapshotGi": 8,
    "shmGi": 8,
    "env": [],
    "resources": {},
    "readOnlyRootFilesystem": True,
    "capabilities": [],
    "runAsUser": 65532,
    "podSecurityContext": {},
    "securityContext": {},
    "terminationGracePeriodSeconds": 120,
    "domainIsHost": True,
    "agent": {"memoryGi": 2, "cpu": "1", "metricsPort": 9465, "settings": {}},
    "storage": {
        "url": "",
        "mirror": "",
        "secretName": "",
        "pvc": {"claimName": "", "size": "", "storageClassName": "", "mountPath": "/checkpoints"},
    },
    "tls": {"agentSecret": "", "submitSecret": ""},
    "serviceAccountName": "",
    "priorityClassName": "",
    "schedulerName": "",
    "hostNetwork": False,
    "ttlSecondsAfterFinished": 0,
    "queue": "",
    "nodeSelector": {},
    "tolerations": [],
    "affinity": {},
    "podAnnotations": {},
    "podLabels": {},
    "annotations": {},
    "labels": {},
    "volumes": [],
    "volumeMounts": [],
}
"""The chart's `jobDefaults`; a test holds them equal."""

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def objects(job: str, values: Values, context: Values) -> list[Manifest]:
    """The manifests of a job. `values` must be complete, see DEFAULTS. Raises UsageError."""
    _check(job, values)
    found = [_policy(job, values, context)]
    if values["storage"]["pvc"]["size"]:
        found.append(_claim(job, values, context))
    found += _certificates(job, values, context)
    return found + _KINDS[values["kind"]](job, values, context)


def _check(job: str, values: Values) -> None:
    if not values["image"]:
        raise UsageError(f"job {job} has no image: give the one that your script is in")
    if not values["command"]:
        raise UsageError(f"job {job} has no command: give one, as python train.py")
    pvc, storage = values["storage"]["pvc"], values["storage"]["url"]
    if storage.startswith("file://") and not pvc["claimName"]:
        raise UsageError(f"job {job} keeps its checkpoints at {storage} and no claim is mounted there")


def submit_words(job: str, values: Values, context: Values) -> list[str]:
    """The arguments of `holdfast` that submit the job and wait for its end."""
    low = values["nodesMin"] or values["nodes"]
    found = [
        "submit",
        "--wait",
        f"--coordinator={','.join(values['coordinators'] or context['coordinators'])}",
        *([] if tls.secret_of(job, "submit", values, context) else ["--insecure"]),
        f"--rdzv-id={job}",
        f"--nnodes={low}:{values['nodes']}",
        f"--nproc-per-node={values['ranksPerNode']}",
        f"--spares={values['sparesPerNode']}",
        f"--cwd={values['workingDir'] or '.'}",
    ]
    for name, flag in (("url", "storage"), ("mirror", "mirror")):
        found += [f"--{flag}={values['storage'][name]}"] if values["storage"][name] else []
    return [*found, *values["flags"], *_script(values["command"])]


def _script(command: list[str]) -> list[str]:
    """The arguments behind the flags: without the interpreter, which is the launcher's own."""
    if not command[0].rpartition("/")[2].startswith("python"):
        return ["--no-python", *command]
    return ["--module", *command[2:]] if command[1:2] == ["-m"] else command[1:]


def _pods(job: str, values: Values, context: Values, restart: str) -> Manifest:
    meta: Manifest = {"labels": labels(job, "trainer", context) | values["podLabels"]}
    # What `kubectl logs` shows without -c: the agent copies the ranks' output.
    meta["annotations"] = {DEFAULT_CONTAINER: "agent"} | values["podAnnotations"]
    return {"metadata": meta, "spec": pod_spec(job, values, context, restart)}


def _job(job: str, values: Values, context: Values) -> list[Manifest]:
    nodes = _owner(_object("batch/v1 Job", f"{job}-nodes", job, "trainer", context), values)
    spec = _queued(values, _indexed(job, values, context) | _ttl(values))
    return [{**_in_queue(values, nodes), "spec": spec}, _submit_job(job, values, context)]


def _submit_job(job: str, values: Values, context: Values) -> Manifest:
    found = _owner(_object("batch/v1 Job", f"{job}-submit", job, "submit", context), values)
    return {**found, "spec": _submit(job, values, context) | _ttl(values)}


def _owner(found: Manifest, values: Values) -> Manifest:
    """An object that makes pods: it has the labels and annotations that people add."""
    found["metadata"]["labels"] |= values["labels"]
    if values["annotations"]:
        found["metadata"]["annotations"] = values["annotations"]
    return found


def _in_queue(values: Values, owner: Manifest) -> Manifest:
    """Put it into a queue of Kueue, if there is one."""
    if values["queue"]:
        owner["metadata"]["labels"] |= {QUEUE_LABEL: values["queue"]}
    return owner


def _queued(values: Values, spec: Manifest) -> Manifest:
    """Start nothing before Kueue lets it begin."""
    return spec | ({"suspend": True} if values["queue"] else {})


def _ttl(values: Values) -> Manifest:
    seconds = values["ttlSecondsAfterFinished"]
    return {"ttlSecondsAfterFinished": seconds} if seconds else {}


def _indexed(job: str, values: Values, context: Values) -> Manifest:
    count = values["nodes"] + values["spareNodes"]
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 1000000,
        "podFailurePolicy": _failed_for_good(JOB_FAILED, "trainer"),
        **({"successPolicy": {"rules": [{"succeededCount": 1}]}} if context["successPolicy"] else {}),
        "template": _pods(job, values, context, "Never"),
    }


def _failed_for_good(code: int, container: str) -> Manifest:
    exits = {"containerName": container, "operator": "In", "values": [code]}
    return {"rules": [{"action": "FailJob", "onExitCodes": exits}]}


def _submit(job: str, values: Values, context: Values) -> Manifest:
    container: Manifest = {
        "name": "submit",
        "image": context["image"],
        "imagePullPolicy": context["imagePullPolicy"],
        "args": submit_words(job, values, context),
        "securityContext": LOCKED,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    secret = tls.secret_of(job, "submit", values, context)
    if secret:
        container |= {"env": tls.variables(), "volumeMounts": tls.mount(secret)}
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": pod_security(values),
        "containers": [container],
    }
    if context.get("imagePullSecrets"):
        spec["imagePullSecrets"] = context["imagePullSecrets"]
    if secret:
        spec["volumes"] = tls.secret_volume(secret)
    return {
        "backoffLimit": 1000,
        "podFailurePolicy": _failed_for_good(1, "submit"),
        "template": {"metadata": {"labels": labels(job, "submit", context)}, "spec": spec},
    }


def _stateful(job: str, values: Values, context: Values) -> list[Manifest]:
    name, chosen = f"{job}-nodes", selector(job, "trainer")
    service = {"clusterIP": "None", "selector": chosen, "publishNotReadyAddresses": True}
    service["ports"] = [{"name": "agent-metrics", "port": values["agent"]["metricsPort"]}]
    spec = {
        "serviceName": name,
        "replicas": values["nodes"] + values["spareNodes"],
        "podManagementPolicy": "Parallel",
        # All ranks must be of one version, so people replace all pods at once.
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": chosen},
        "template": _pods(job, values, context, "Always"),
    }
    nodes = _owner(_object("apps/v1 StatefulSet", name, job, "trainer", context), values)
    return [
        {**_object("v1 Service", name, job, "trainer", context), "spec": service},
        {**_in_queue(values, nodes), "spec": spec},
        _submit_job(job, values, context),
    ]


def _jobset(job: str, values: Values, context: Values) -> list[Manifest]:
    templates = {"nodes": _indexed(job, values, context), "submit": _submit(job, values, context)}
    spec = {
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["submit"]},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [
            {"name": name, "replicas": 1, "template": {"spec": each}} for name, each in templates.items()
        ],
    }
    owner = _owner(_object("jobset.x-k8s.io/v1alpha2 JobSet", job, job, "trainer", context), values)
    return [{**_in_queue(values, owner), "spec": _queued(values, spec | _ttl(values))}]


def _object(what: str, name: str, job: str, component: str, context: Values) -> Manifest:
    """`what`: API and kind, as `batch/v1 Job`."""
    api, _, kind = what.partition(" ")
    meta = {"name": name, "labels": labels(job, component, context)}
    return {"apiVersion": api, "kind": kind, "metadata": meta}


def _policy(job: str, values: Values, context: Values) -> Manifest:
    """Allow ranks and agents of a job to meet on any port, and leaders to probe silent nodes; others may read
    /metrics only."""
    chosen = {"matchLabels": selector(job, "trainer")}
    coordinator = {"app.kubernetes.io/name": "holdfast", "app.kubernetes.io/component": "coordinator"}
    leaders = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "podSelector": {"matchLabels": coordinator},
        }
        for name in _namespaces(values["coordinators"] or context["coordinators"])
    ]
    spec = {
        "podSelector": chosen,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": chosen}]},
            *([{"from": leaders}] if leaders else []),
            {"ports": [{"port": values["agent"]["metricsPort"]}]},
        ],
    }
    return {**_object("networking.k8s.io/v1 NetworkPolicy", job, job, "trainer", context), "spec": spec}


def _namespaces(coordinators: list[str]) -> list[str]:
    """The namespaces of these services, taken from *.NAMESPACE.svc."""
    found = [re.search(r"([^.]+)\.svc[.:]", each) for each in coordinators]
    return list(dict.fromkeys(each[1] for each in found if each))


def _claim(job: str, values: Values, context: Values) -> Manifest:
    pvc = values["storage"]["pvc"]
    modes = ["ReadWriteMany" if values["nodes"] + values["spareNodes"] > 1 else "ReadWriteOnce"]
    spec: Manifest = {"accessModes": modes, "resources": {"requests": {"storage": pvc["size"]}}}
    if pvc["storageClassName"]:
        spec["storageClassName"] = pvc["storageClassName"]
    return {**_object("v1 PersistentVolumeClaim", pvc["claimName"], job, "trainer", context), "spec": spec}


def _certificates(job: str, values: Values, context: Values) -> list[Manifest]:
    found = []
    for spec in tls.certificates(job, values, context):
        name = spec["secretName"].removesuffix("-tls")
        component = "submit" if name.endswith("-submit") else "trainer"
        made = _object("cert-manager.io/v1 Certificate", name, job, component, context)
        found.append({**made, "spec": spec})
    return found


_KINDS: dict[str, Callable[[str, Values, Values], list[Manifest]]] = {
    "Job": _job,
    "StatefulSet": _stateful,
    "JobSet": _jobset,
}
