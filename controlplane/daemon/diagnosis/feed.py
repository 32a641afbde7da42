"""Collect what agents report about steps until a window of one job is judged. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from controlplane.analysis.live.readings import (
    PHASES,
    UNKNOWN,
    DiskReading,
    JobWindow,
    NodeSigns,
    RankWindow,
    RankWork,
    SlowRow,
)
from controlplane.analysis.live.resources.storage import NodeStorage
from controlplane.core.failures import quarantine
from holdfast.coordinates import Coordinates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controlplane.core.records.diagnosis import (
        GradientReport,
        NodeDisks,
        SlowSteps,
        StepTimes,
        StorageTraffic,
    )
    from controlplane.core.records.model import Generation
    from controlplane.core.records.node_checks import NodeSensed
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

T = TypeVar("T")
_SUMS = (
    *("steps", "covered", "wall_s", "data_s", "forward_s", "backward_s", "communication_s", "optimizer_s"),
    *("snapshot_s", "other_s", "cpu_s", "samples", "tokens", "flops"),
)
_NEWEST = {
    "last_step": "last_steps",
    "generation": "generations",
    "longest_s": "longest_s",
    "memory_bytes": "memory_bytes",
    "memory_peak_bytes": "memory_peak_bytes",
}
"""Readings of which the newest counts: by its name in a row, the report's column."""
_ADDED = ("compile_s", "evaluate_s", "checkpoint_s")
_NEWEST_OPTIONAL = {"memory_limit_bytes": 0, "memory_reserved_bytes": 0, "device_used": float(UNKNOWN)}
"""Readings that older agents do not send, and what is written for them."""
_COUNTED = ("watched_s", "ran_s", "queued_s", "throttled_s")
"""Sums of which older agents report none."""


class _Traffic(NamedTuple):
    """A node's traffic with its storage: when it was used last, and now."""

    incarnation: int
    first: StorageTraffic
    newest: StorageTraffic


SLOW_MAX = 20_000
"""Reports of slow steps that wait for a window: one of each node."""
GRADIENTS_MAX = 20_000
"""Reports of gradients that wait for a window: two of each rank, in a job of 10,000."""


class StepFeed:
    """The reports of one leader term that no window has used yet."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # by job, by member
        self._storage: dict[str, dict[str, _Traffic]] = defaultdict(dict)  # by job, by node
        self._work: dict[str, dict[str, tuple[float, float, str]]] = defaultdict(dict)  # by job, by member
        self._disks: dict[str, dict[str, NodeDisks]] = defaultdict(dict)  # by job, by node
        self._ends: dict[str, dict[str, tuple[str, int]]] = defaultdict(dict)  # by job, by member
        self._gradients: dict[str, list[GradientReport]] = defaultdict(list)  # by job
        self._slow: dict[str, list[SlowSteps]] = defaultdict(list)  # by job

    def take(self, report: StepTimes) -> None:
        """Add a report to its job's window."""
        rows = self._rows[report.job]
        for index, member in enumerate(report.members):
            row = rows.get(member)
            if row is None or row["generation"] != report.generations[index]:
                row = rows[member] = dict.fromkeys((*_SUMS, *_COUNTED, *_ADDED), 0)
            for name in _SUMS:
                row[name] += getattr(report, name)[index]
            for name, column in _NEWEST.items():
                row[name] = getattr(report, column)[index]
            self._take_optional(report, index, row)
        if report.slow is not None and len(self._slow[report.job]) < SLOW_MAX:
            self._slow[report.job].append(report.slow)
        if report.disks is not None:
            self._disks[report.job][report.node] = report.disks
        if report.storage is not None:
            before = self._storage[report.job].get(report.node)
            same = before is not None and before.incarnation == report.incarnation
            first = before.first if before is not None and same else report.storage
            self._storage[report.job][report.node] = _Traffic(report.incarnation, first, report.storage)

    def _take_optional(self, report: StepTimes, index: int, row: dict[str, Any]) -> None:
        """Add what newer agents report."""
        if all(getattr(report, name) for name in (*_COUNTED, "cpu_limits")):
            for name in _COUNTED:
                row[name] += getattr(report, name)[index]
            row["cpu_limit"] = report.cpu_limits[index]
        for name in _ADDED:
            row[name] += _at(getattr(report, name), index, 0.0)
        for name, unknown in _NEWEST_OPTIONAL.items():
            row[name] = _at(getattr(report, name), index, unknown)
        if not 0.0 <= row["device_used"] <= 1.0:
            row["device_used"] = float(UNKNOWN)
        if report.end_kinds:
            self._ends[report.job][report.members[index]] = (
                report.end_kinds[index],
                _at(report.end_steps, index, 0),
            )
        if report.compute_notes:
            self._work[report.job][report.members[index]] = (
                _at(report.token_flops, index, 0.0),
                _at(report.peak_flops, index, 0.0),
                report.compute_notes[index],
            )

    def _moved(self, job: str) -> tuple[NodeStorage, ...]:
        """What each node has moved since this was asked last."""
        found, kept = [], self._storage.pop(job, {})
        for node, traffic in sorted(kept.items()):
            first, newest = traffic.first, traffic.newest
            found.append(
                NodeStorage(
                    node,
                    newest.bytes_written - first.bytes_written,
                    newest.write_s - first.write_s,
                    newest.bytes_read - first.bytes_read,
                    newest.read_s - first.read_s,
                )
            )
            self._storage[job][node] = _Traffic(traffic.incarnation, newest, newest)
        return tuple(found)

    def _room(self, job: str) -> tuple[DiskReading, ...]:
        """The newest room on each node's file systems that was reported since this was asked last."""
        return tuple(
            DiskReading(node, *row)
            for node, disks in sorted(self._disks.pop(job, {}).items())
            for row in zip(disks.paths, disks.uses, disks.free_bytes, disks.total_bytes, strict=True)
        )

    def take_gradients(self, report: GradientReport) -> None:
        """Add what one rank has measured to its job's window; beyond the limit it is dropped."""
        found = self._gradients[report.job]
        if len(found) < GRADIENTS_MAX:
            found.append(report)

    def window(
        self, job: Job, domains: Mapping[str, str], began_s: float, ended_s: float
    ) -> JobWindow | None:
        """What was reported of this job between the two times, which it forgets; None: nothing, or the job
        has no ranks that train."""
        rows, generation = self._rows.pop(job.name, {}), job.generation
        slow = self._slow.pop(job.name, [])
        work, ends = self._work.pop(job.name, {}), self._ends.pop(job.name, {})
        if not rows or generation is None:
            return None
        gradients = tuple(self._gradients.pop(job.name, ()))
        spec, size = job.spec, len(generation.seats)
        ranks = []
        for seat in generation.seats:
            row = rows.get(seat.member)
            if row is None:
                continue
            dp_rank, stage, cp_rank, tp_rank = Coordinates(
                seat.rank, size, spec.tensor_parallel, spec.pipeline_parallel, spec.context_parallel
            ).place
            ranks.append(
                RankWindow(
                    rank=seat.rank,
                    member=seat.member,
                    node=seat.node,
                    device=seat.local_rank,
                    domain=domains.get(seat.node, ""),
                    dp_rank=dp_rank,
                    stage=stage,
                    cp_rank=cp_rank,
                    tp_rank=tp_rank,
                    **row,
                )
            )
        works = tuple(RankWork(each.rank, *work[each.member]) for each in ranks if each.member in work)
        costs, choice = job.checkpoints.costs, job.checkpoints.choice
        return JobWindow(
            job=job.name,
            generation=generation.number,
            began_s=began_s,
            ended_s=ended_s,
            ranks=tuple(ranks),
            ranks_expected=size,
            storage=self._moved(job.name),
            disks=self._room(job.name),
            work=works,
            ends=_ends([row for row in ranks if row.generation == generation.number], ends),
            gradients=gradients,
            slow=tuple(_slow_rows(slow, generation)),
            slow_more=sum(each.more for each in slow),
            checkpoints=costs.uploads,
            checkpoint_took_s=costs.newest_upload_s,
            checkpoint_every_s=choice.interval_s if choice is not None else spec.checkpoint_every_s,
        )

    def forget(self, jobs: set[str]) -> None:
        """Forget the reports about all jobs but these."""
        by_member, by_node = (self._rows, self._work, self._ends), (self._storage, self._disks)
        for kept in (*by_member, *by_node, self._gradients, self._slow):
            for job in [name for name in kept if name not in jobs]:
                del kept[job]


def _ends(
    ranks: Sequence[RankWindow], ends: Mapping[str, tuple[str, int]]
) -> frozenset[tuple[str, int]] | None:
    """What these ranks say of their end; None: there are none."""
    return frozenset(ends[row.member] for row in ranks if row.member in ends) if ranks else None


def _slow_rows(reports: Iterable[SlowSteps], generation: Generation) -> Iterable[SlowRow]:
    """The slow steps of the ranks of this generation, in which they ran."""
    nodes = {seat.rank: seat.node for seat in generation.seats} if reports else {}
    for each in reports:
        phases = [getattr(each, f"{name}_s") for name in PHASES]
        for at, rank in enumerate(each.ranks):
            if rank in nodes and each.generations[at] == generation.number and each.wall_s[at] > 0:
                spent_s = tuple(column[at] for column in phases)
                numbers = each.at_steps[at], each.usual_s[at], each.wall_s[at], spent_s
                yield SlowRow(rank, nodes[rank], generation.number, *numbers)


def _at(column: Sequence[T], index: int, unknown: T) -> T:
    """One value of a column that may be absent."""
    return column[index] if column else unknown


def signs(
    node: Node, state: ClusterState, sensed: NodeSensed | None, silent_s: float = 0.0
) -> NodeSigns | None:
    """What the leader knows of a node that may fail; None: nothing. What has put a node into quarantine is
    left out: health says it.

    `sensed`: what its sensors show; None: its agent has not told. `silent_s`: for how long it has reported no
    steps."""
    record, settings = node.failure_history, state.settings
    if quarantine.quarantined(record, state.wall):
        return NodeSigns(node.name, 0.0, silent_s=silent_s) if silent_s else None
    score = quarantine.decayed(record, state.wall, settings.lemon_half_life_s)
    failures = ", ".join(f"{times} x {cause}" for cause, times in record.causes) if record else ""
    found = NodeSigns(
        node=node.name,
        score_ratio=score / settings.lemon_score,
        failures=failures,
        bad_devices=tuple(sorted(node.bad_devices)),
        held=node.held_why if node.held_until > state.now else node.cut,
        silent_s=silent_s,
    )
    if sensed is not None:
        found = found._replace(devices=sensed.signs, not_known="; ".join(sensed.unknown))
    return found if score or found.bad_devices or found.held or silent_s or found.devices else None
