"""Make the security contexts of pods and containers: what is locked, and what the values put over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.cli.kubernetes.values import Manifest, Values

LOCKED: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_security(values: Values) -> Manifest:
    """Run every container of the pod as this one user, which is not root."""
    user = values["runAsUser"]
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
        **values["podSecurityContext"],
    }


def trainer_security(values: Values) -> Manifest:
    """What the container of the ranks may do."""
    found = {**LOCKED, "readOnlyRootFilesystem": values["readOnlyRootFilesystem"]}
    if values["capabilities"]:
        found["capabilities"] = LOCKED["capabilities"] | {"add": values["capabilities"]}
    return {**found, **values["securityContext"]}
