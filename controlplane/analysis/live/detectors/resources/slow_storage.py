"""Find a node that writes checkpoints, or reads them, slower than its peers do, and a storage that has become
slow for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.live import policy
from controlplane.analysis.live.resources.storage import READ, WRITE
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.resources.storage import StorageSpeed
    from controlplane.analysis.live.situation import LiveSituation

_WORDS = {WRITE: "writes checkpoints", READ: "reads checkpoints"}
_NODE = (
    "Look at the way from node {0} to the storage: its network card, mount options, a full page cache, other "
    "programs that write there. The other nodes reach the same storage faster."
)
_ALL = "Look at the storage itself, and at who else uses it: all nodes of the job have become slower alike."


def slow_storage(s: LiveSituation) -> Iterator[Finding]:
    """Nodes that are slow against most others; or the storage, against what it once did."""
    for way in (WRITE, READ):
        speeds = s.memory.storage.speeds(way, s.job.ended_s)
        if not speeds:
            continue
        ascending = sorted(each.bytes_per_s for each in speeds.values())
        typical = ascending[len(ascending) // 2]
        best = s.memory.storage.best(way, typical)
        slow = {node: each for node, each in speeds.items() if _slow(each, typical)}
        if len(speeds) >= policy.STORAGE_NODES_LEAST and slow and 2 * len(slow) < len(speeds):
            worst = sorted(slow, key=lambda node: (slow[node].bytes_per_s, node))
            yield from (_of_node(node, way, slow[node], typical, len(speeds)) for node in worst)
        elif best >= policy.STORAGE_RATIO * typical and not slow:
            yield _of_all(way, typical, best, len(speeds))


def _slow(speed: StorageSpeed, typical: float) -> bool:
    """Whether a node is slow, by a ratio and by time that is worth a word."""
    ratio = typical / speed.bytes_per_s
    return ratio >= policy.STORAGE_RATIO and speed.busy_s * (1.0 - 1.0 / ratio) >= policy.STORAGE_EXCESS_S


def _of_node(node: str, way: str, speed: StorageSpeed, typical: float, nodes: int) -> Finding:
    ratio = typical / speed.bytes_per_s
    return Finding(
        "slow_storage",
        Level.DEGRADED,
        f"storage of node {node}",
        f"it {_WORDS[way]} at {speed.bytes_per_s / 1e6:.3g} MB/s, and a typical one of {nodes} nodes at "
        f"{typical / 1e6:.3g} MB/s, {ratio:.1f} times as fast: {speed.bytes / 2**20:.0f} MiB took "
        f"{speed.busy_s:.3g} s",
        place=(("node", node), ("rank", None)),
        confidence=policy.STORAGE_CONFIDENCE,
        evidence=(
            ("storage_ratio", ratio),
            ("bytes_per_s", speed.bytes_per_s),
            ("typical_bytes_per_s", typical),
            ("nodes_count", float(nodes)),
            ("way", way),
        ),
        recommendations=(Recommendation(_NODE.format(node), None, Effort.MEDIUM),),
    )


def _of_all(way: str, typical: float, best: float, nodes: int) -> Finding:
    ratio = best / typical
    return Finding(
        "slow_storage",
        Level.DEGRADED,
        "",
        f"a typical node {_WORDS[way]} at {typical / 1e6:.3g} MB/s, and did at {best / 1e6:.3g} MB/s before, "
        f"{ratio:.1f} times as fast: no node stands out, so it is the storage or the way to it",
        place=(("node", None), ("rank", None)),
        confidence=policy.STORAGE_CONFIDENCE,
        evidence=(
            ("storage_ratio", ratio),
            ("bytes_per_s", typical),
            ("best_bytes_per_s", best),
            ("nodes_count", float(nodes)),
            ("way", way),
        ),
        recommendations=(Recommendation(_ALL, None, Effort.MEDIUM),),
    )
