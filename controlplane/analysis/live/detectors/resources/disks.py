"""Find file systems that fill up steadily, and say when they are full.

Checkpoints that are written and deleted again make a saw-tooth, and the first ones fill a disk until
retention deletes as much as is written. So the fall has to be steady over several checkpoints, and is not
continued further than a few times as long as it was watched."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from controlplane.analysis.live import policy
from controlplane.analysis.trends.slopes import steady_growth
from controlplane.core.records.words import GIB
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.readings import DiskReading
    from controlplane.analysis.live.resources.disk_space import DiskHistory
    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.analysis.robust import Floats


class _Filling(NamedTuple):
    disk: DiskReading
    bytes_per_s: float
    left_s: float


def disk_filling(s: LiveSituation) -> Iterator[Finding]:
    """File systems that will be full soon, the first of them first; one that several nodes share, once."""
    every_s = s.memory.checkpoints.every_s
    found = [each for each in (_filling(disk, every_s) for disk in s.memory.disks.all()) if each is not None]
    shared = sorted(found, key=lambda each: (each.disk.path, each.disk.total_bytes, each.disk.node))
    groups = [list(g) for _, g in groupby(shared, key=lambda each: (each.disk.path, each.disk.total_bytes))]
    rows: list[tuple[_Filling, int]] = []
    for group in groups:
        free = [each.disk.free_bytes for each in group]
        alike = max(free) - min(free) <= policy.DISK_ALIKE * group[0].disk.total_bytes
        if len(group) > 1 and alike:
            rows.append((min(group, key=lambda each: each.left_s), len(group)))
        else:
            rows += [(each, 1) for each in group]
    for each, nodes in sorted(rows, key=lambda row: (row[0].left_s, row[0].disk))[: policy.NAMED_MAX]:
        yield _finding(s, each, nodes)


def _filling(disk: DiskHistory, every_s: float) -> _Filling | None:
    """How a file system fills: by the newer half of the samples, since the pace may have changed, or by all
    where that half is too short."""
    least_s = max(policy.DISK_SPAN_S, policy.DISK_CHECKPOINTS * every_s)
    for begin in (len(disk.at) // 2, 0):
        at, free = disk.at[begin:], disk.free[begin:]
        if len(at) >= policy.DISK_LEAST and at[-1] - at[0] >= least_s:
            return _steady(disk.newest, at, free)
    return None


def _steady(disk: DiskReading, at: Floats, free: Floats) -> _Filling | None:
    """The forecast by these samples; None: it does not fill steadily, or is not full for long."""
    if disk.free_bytes > 2.0 * policy.DISK_AHEAD * float(free[0] - free[-1]):
        return None  # the cheap look: most file systems end here
    rate = steady_growth(at, -free, policy.DISK_RATIO * disk.total_bytes)
    if rate is None:
        return None
    left_s = disk.free_bytes / rate
    far_s = min(policy.DISK_FAR_S, policy.DISK_AHEAD * float(at[-1] - at[0]))
    return _Filling(disk, rate, left_s) if left_s <= far_s else None


def _finding(s: LiveSituation, filling: _Filling, nodes: int) -> Finding:
    disk, full_s = filling.disk, s.job.ended_s + filling.left_s
    where = f"of node {disk.node}" if nodes == 1 else f"of {nodes} nodes alike, {disk.node} for one"
    return Finding(
        "disk_filling",
        Level.CRITICAL if filling.left_s <= policy.DISK_SOON_S else Level.DEGRADED,
        f"disk {disk.path} {where}",
        f"it holds {disk.use}, and fills steadily by {filling.bytes_per_s * 3600.0 / GIB:.3g} GiB per hour; "
        f"{disk.free_bytes / GIB:.3g} of {disk.total_bytes / GIB:.3g} GiB are free, and at this rate it is "
        f"full in {filling.left_s / 3600.0:.2g} hours",
        place=(("node", disk.node if nodes == 1 else None), ("rank", None)),
        confidence=0.9,
        evidence=(
            ("free_bytes", disk.free_bytes),
            ("total_bytes", disk.total_bytes),
            ("fills_bytes_per_s", filling.bytes_per_s),
            ("full_in_s", filling.left_s),
            ("full_at_s", full_s),
            ("path", disk.path),
        ),
        recommendations=(
            Recommendation(
                f"Look what grows there: `du -x {disk.path}`. Keep fewer checkpoints (`--keep-last`), "
                "delete what other jobs have left, or enlarge it.",
                None,
                Effort.LOW,
            ),
        ),
    )
