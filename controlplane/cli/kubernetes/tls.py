"""Choose the certificates of a job: secrets of one's own, cert-manager's, or none on explicit request.

The chart's templates do the same (helm/holdfast/templates/_job.tpl); a test renders both and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.cli.kubernetes.security import pod_security

if TYPE_CHECKING:
    from controlplane.cli.kubernetes.values import Manifest, Values

FOLDER = "/etc/holdfast/tls"
DENIED = "/etc/holdfast/denied"
INSECURE: dict[str, Any] = {
    "from": "insecure",
    "csiDriver": False,
    "agentSecret": "",
    "submitSecret": "",
    "denyMap": "",
}
"""The `tls` of a context that asks for plaintext.

Others have: `from` (certManager or secrets), peerName, csiDriver, hours, issuer {name, kind, group}, the
secrets that jobs share (agentSecret, submitSecret), and the config map of the deny list with its key
(denyMap, denyKey)."""

_FILES = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
_MODE = 0o440


def secret_of(job: str, whose: str, values: Values, context: Values) -> str:
    """The name of a job's secret, for `whose` (agent or submit); "" for plaintext."""
    tls = context["tls"]
    if tls["from"] == "insecure":
        return ""
    name = f"{whose}Secret"
    return str(values["tls"][name] or tls[name] or f"{job}-{whose}-tls")


def agent_flags(job: str, values: Values, context: Values) -> list[str]:
    """The flags for an agent's certificate, and for the peers that it accepts."""
    if not secret_of(job, "agent", values, context):
        return ["--insecure"]
    files = [f"--tls-{name}={FOLDER}/{file}" for name, file in _FILES.items()]
    tls = context["tls"]
    denied = [f"--deny-list={DENIED}/{tls['denyKey']}"] if tls["denyMap"] else []
    return [*files, f"--tls-peer-name={tls['peerName']}", *denied]


def variables() -> list[Manifest]:
    """The environment variables with the certificate for calls of `holdfast`."""
    return [{"name": f"HOLDFAST_TLS_{name.upper()}", "value": f"{FOLDER}/{f}"} for name, f in _FILES.items()]


def mount(secret: str) -> list[Manifest]:
    """Where a secret's files are in a container; [] without a secret."""
    return [{"name": "tls", "mountPath": FOLDER, "readOnly": True}] if secret else []


def agent_mounts(job: str, values: Values, context: Values) -> list[Manifest]:
    """Where the agent finds its certificate and the deny list."""
    denied = [{"name": "denied", "mountPath": DENIED, "readOnly": True}] if context["tls"]["denyMap"] else []
    return [*mount(secret_of(job, "agent", values, context)), *denied]


def agent_volumes(job: str, values: Values, context: Values) -> list[Manifest]:
    """The volumes for `agent_mounts`."""
    name = context["tls"]["denyMap"]
    denied = [{"name": "denied", "configMap": {"name": name, "defaultMode": _MODE}}] if name else []
    return [*_agent_volume(job, values, context), *denied]


def secret_volume(secret: str) -> list[Manifest]:
    """The volume of a secret; [] without one."""
    held = {"secretName": secret, "defaultMode": _MODE}
    return [{"name": "tls", "secret": held}] if secret else []


def _agent_volume(job: str, values: Values, context: Values) -> list[Manifest]:
    """The volume of the agents' certificate: one per pod from the CSI driver, or the secret that they
    share."""
    tls = context["tls"]
    if not tls["csiDriver"] or values["tls"]["agentSecret"]:
        return secret_volume(secret_of(job, "agent", values, context))
    attributes = {
        **{f"issuer-{part}": tls["issuer"][part] for part in ("name", "kind", "group")},
        "duration": f"{tls['hours']}h",
        "key-usages": "server auth,client auth",
        "dns-names": tls["peerName"],
        "uri-sans": f"holdfast://{context['cluster']}/agent/${{POD_NAME}}{_of(job, values)}",
        "fs-group": str(pod_security(values)["fsGroup"]),
    }
    named = {f"csi.cert-manager.io/{name}": value for name, value in attributes.items()}
    csi = {"driver": "csi.cert-manager.io", "readOnly": True, "volumeAttributes": named}
    return [{"name": "tls", "csi": csi}]


def _of(job: str, values: Values) -> str:
    """The part of an agent's identity that limits it to its job; nodes that stay (StatefulSet) serve every
    job."""
    return "" if values["kind"] == "StatefulSet" else f"?job={job}"


def certificates(job: str, values: Values, context: Values) -> list[Manifest]:
    """The specs of the certificates that cert-manager must make."""
    tls = context["tls"]
    if tls["from"] != "certManager":
        return []
    found = []
    who = f"holdfast://{context['cluster']}"
    if not tls["csiDriver"] and not values["tls"]["agentSecret"]:
        names = {"dnsNames": [tls["peerName"]], "uris": [f"{who}/agent/{job}-nodes-*{_of(job, values)}"]}
        usages = ["server auth", "client auth"]
        found.append(_certificate(job, "agent", values, context) | {"usages": usages} | names)
    if not values["tls"]["submitSecret"]:
        names = {"uris": [f"{who}/operator/{job}-submit?job={job}"]}
        found.append(_certificate(job, "submit", values, context) | {"usages": ["client auth"]} | names)
    return found


def _certificate(job: str, whose: str, values: Values, context: Values) -> Manifest:
    return {
        "secretName": secret_of(job, whose, values, context),
        "duration": f"{context['tls']['hours']}h0m0s",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": context["tls"]["issuer"],
    }
