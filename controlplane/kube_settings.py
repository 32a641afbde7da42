"""Declare what a coordinator may do in Kubernetes: nothing by default (docs/operations.md)."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.timing import CoreSettings
from controlplane.setting import setting

_CORE = CoreSettings()


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class KubeSettings:
    """Settings for replacing the pods of nodes, watching their hosts, and writing Events."""

    replace_nodes: bool = setting(
        _CORE.replace_nodes,
        "delete the pods of nodes that are lost, quarantined or have bad devices, so that Kubernetes makes "
        "new ones",
    )
    replace_after_s: float = setting(
        _CORE.replace_after_s,
        "with --replace-nodes: how long a node must have been lost or bad before its pod is deleted",
        unit="s",
        minimum=0,
    )
    replace_per_hour: int = setting(
        _CORE.replace_per_hour, "with --replace-nodes: most pods to delete in one hour", minimum=1
    )
    force_replacement: bool = setting(
        True, "delete the pod of a silent node without a grace period: its kubelet may never answer"
    )
    cordon_hosts: bool = setting(
        False, "with --replace-nodes: cordon the host before the pod of a bad node is deleted"
    )
    watch_hosts: bool = setting(False, "drain the nodes on a host that is cordoned, or has a NoExecute taint")
    kube_events: bool = setting(False, "write incidents as Kubernetes Events of the pods")
    label_leader: bool = setting(False, "label the pod of the leader holdfast.dev/leads=yes, for a Service")
    kube_account: str = setting(
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "folder of the service account: token, ca.crt, namespace",
    )
    forget_after_s: float = setting(
        _CORE.forget_after_s,
        "forget a node that no job needs after it has been lost for this long, because new pods have new "
        "names; 0: never",
        unit="s",
        minimum=0,
    )
