"""What a coordinator asks of Kubernetes: nothing, unless it is told to (docs/operations.md)."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.setting import setting


@dataclass(frozen=True)  # without slots: it is a second base
class KubeSettings:
    """Nodes that are pods: replaced, moved off their hosts, and told of."""

    replace_nodes: bool = setting(
        False, "have Kubernetes delete the pods of nodes that are lost, or will not do any more"
    )
    replace_after_s: float = setting(60.0, "once they have been so for this long", unit="s", minimum=0)
    replace_per_hour: int = setting(6, "no more of them within an hour", minimum=1)
    force_replacement: bool = setting(
        True, "take the pod of a silent node out of the API at once: its kubelet may never answer"
    )
    cordon_hosts: bool = setting(False, "cordon the host of a pod before it is deleted for good reason")
    watch_hosts: bool = setting(
        False, "drain nodes whose host is cordoned, or tainted so that pods must leave it"
    )
    kube_events: bool = setting(False, "tell incidents as Kubernetes Events, beside their pods")
    label_leader: bool = setting(False, "label the pod that leads holdfast.dev/leads=yes, for a Service")
    kube_account: str = setting(
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "folder of our service account: token, ca.crt, namespace",
    )
    forget_after_s: float = setting(
        0.0,
        "a node lost for so long that nobody needs is forgotten: pods come under new names; 0: never",
        unit="s",
        minimum=0,
    )
