"""Keep what the sensors of each node show, as its agent has told last. Pure: no clock, no I/O."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records.node_checks import SIGN_TEXT_MAX, SIGNS_MAX

if TYPE_CHECKING:
    from collections.abc import Container

    from controlplane.core.records.node_checks import DeviceSign, NodeSensed
    from controlplane.core.state.cluster_state import Node

UNKNOWN_MAX = 32


class SensedNodes:
    """What each node's sensors show, by its name. An agent tells more only when that changes."""

    def __init__(self) -> None:
        self._newest: dict[str, NodeSensed] = {}

    def take(self, found: NodeSensed) -> None:
        """Take what an agent tells, bounded as agents bound it themselves."""
        self._newest[found.node] = dataclasses.replace(
            found,
            signs=tuple(_bounded(each) for each in found.signs[:SIGNS_MAX]),
            unknown=tuple(words[:SIGN_TEXT_MAX] for words in found.unknown[:UNKNOWN_MAX]),
        )

    def of(self, node: Node) -> NodeSensed | None:
        """What the node's agent of now has told; None: nothing yet."""
        found = self._newest.get(node.name)
        return found if found is not None and found.incarnation == node.incarnation else None

    def forget(self, nodes: Container[str]) -> None:
        """Forget all nodes but these."""
        for name in [name for name in self._newest if name not in nodes]:
            del self._newest[name]


def _bounded(sign: DeviceSign) -> DeviceSign:
    return dataclasses.replace(sign, device=sign.device[:SIGN_TEXT_MAX], code=sign.code[:SIGN_TEXT_MAX])
