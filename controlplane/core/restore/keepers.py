"""Know which nodes keep replicas of a job's snapshots, without asking all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records.model import PeerCopy
    from controlplane.core.state.cluster_state import ClusterState, Node


def keep(state: ClusterState, node: Node, copies: tuple[PeerCopy, ...]) -> None:
    """Record which replicas a node keeps now."""
    if copies == node.copies:
        return
    before, now = _jobs(node.copies), _jobs(copies)
    node.copies = copies
    for job in before.keys() - now.keys():
        state.keepers[job].pop(node.name, None)
        if not state.keepers[job]:
            del state.keepers[job]
    for job in now:
        state.keepers.setdefault(job, {})[node.name] = None


def of(state: ClusterState, job: str) -> list[Node]:
    """The nodes that keep replicas of this job's snapshots, by name."""
    return [state.nodes[name] for name in sorted(state.keepers.get(job, ()))]


def check(state: ClusterState) -> None:
    """Raise AssertionError when the index is not what the nodes say."""
    found: dict[str, set[str]] = {}
    for node in state.nodes.values():
        for job in _jobs(node.copies):
            found.setdefault(job, set()).add(node.name)
    assert {job: set(names) for job, names in state.keepers.items()} == found, "keepers of copies are off"


def _jobs(copies: Iterable[PeerCopy]) -> dict[str, None]:
    return dict.fromkeys(copy.job for copy in copies)
