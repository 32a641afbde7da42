"""Carry out ReplaceNode: delete the node's pod, after cordoning its host if that is wanted.

A node is the pod of the same name. What made the pod (a Job, a StatefulSet) makes a new one, which
registers as a node."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from controlplane.core.records.events import NodeReplaced
from controlplane.daemon.kube.api import NONSENSE, PATCH, KubeError
from controlplane.daemon.loop.keyed_tasks import KeyedTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import ReplaceNode
    from controlplane.core.records.events import Event
    from controlplane.daemon.kube.api import Api

OURS = "app.kubernetes.io/name"
WHY = "holdfast.dev/cordoned"
NOT_FOUND, CONFLICT = 404, 409
log = logging.getLogger(__name__)


class NotOurs(Exception):
    """The pod of this name is not one that we may delete. The message says why."""


class Replacer:
    """Runs one task per node at a time. `cordon`: cordon the host first.

    `force`: delete the pod of a silent node without a grace period, because its kubelet may never answer;
    otherwise the API waits for the kubelet."""

    def __init__(self, api: Api, post: Callable[[Event], None], *, cordon: bool, force: bool) -> None:
        self._api, self._post, self._cordon, self._force = api, post, cordon, force
        self._tasks = KeyedTasks()

    def replace(self, effect: ReplaceNode) -> None:
        """Begin a replacement. Its outcome is posted as a NodeReplaced."""
        self._tasks.begin(effect.node, lambda: self._run(effect))

    async def close(self) -> None:
        """Cancel all replacements."""
        await self._tasks.close()

    async def _run(self, effect: ReplaceNode) -> None:
        try:
            ok, reason = True, await self._replace(effect)
        except (KubeError, NotOurs) as error:
            ok, reason = False, str(error)
        except NONSENSE as error:
            ok, reason = False, f"the API sent invalid data about the pod: {error!r}"
        log.log(logging.INFO if ok else logging.ERROR, "replacing node %s: %s", effect.node, reason)
        self._post(NodeReplaced(effect.node, effect.incarnation, ok, reason))

    async def _replace(self, effect: ReplaceNode) -> str:
        path = f"/api/v1/namespaces/{self._api.account.namespace}/pods/{effect.node}"
        try:
            pod = await self._api.get("pod_get", path)
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            return "there is no pod of this name any more"
        other = _successor(pod, effect)
        if other:
            return other
        cordoned = await self._cordon_host(pod, effect) if self._cordon else ""
        await self._delete(path, pod, effect)
        return f"pod deleted{cordoned}"

    async def _delete(self, path: str, pod: dict[str, Any], effect: ReplaceNode) -> None:
        """Delete this very pod. A newer one that has taken its name meanwhile is left alone."""
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod["metadata"]["uid"]},
        }
        if effect.gone and self._force:
            options["gracePeriodSeconds"] = 0
        try:
            await self._api.ask("pod_delete", "DELETE", path, options)
        except KubeError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    async def _cordon_host(self, pod: dict[str, Any], effect: ReplaceNode) -> str:
        """Cordon the pod's host, so that the new pod does not come to it. Return what to add to the
        outcome's reason."""
        host = pod.get("spec", {}).get("nodeName", "")
        if not host:
            return ""
        why = {"annotations": {WHY: effect.reason[:256]}}
        patch = {"metadata": why, "spec": {"unschedulable": True}}
        await self._api.ask("node_cordon", "PATCH", f"/api/v1/nodes/{host}", patch, PATCH)
        return f", its host {host} cordoned"


def _successor(pod: dict[str, Any], effect: ReplaceNode) -> str:
    """Return why the pod is not the node that is meant, but a later one of the same name; "" when it is the
    node.

    Raises NotOurs."""
    if pod.get("metadata", {}).get("labels", {}).get(OURS) != "holdfast":
        raise NotOurs(f"pod {effect.node} has no label {OURS}=holdfast, so it is left alone")
    address = pod.get("status", {}).get("podIP", "")
    if effect.address and address and address != effect.address:
        return f"another pod already has this name, at {address}"
    return ""
