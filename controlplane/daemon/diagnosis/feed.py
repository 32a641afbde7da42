"""Collect what agents report about steps until a window of one job is judged. Pure: no clock, no I/O.

The leader's loop only keeps reports and takes them out again; whoever judges a window, in another thread,
adds them up first (`CollectedReports.window`)."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from controlplane.analysis.live.readings import PHASES, DiskReading, JobWindow, NodeSigns, SlowRow
from controlplane.analysis.live.resources.storage import NodeStorage
from controlplane.core.failures import quarantine
from controlplane.core.records.words import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    from controlplane.daemon.diagnosis.step_rows import Seating


class _Traffic(NamedTuple):
    """A node's traffic with its storage: when it was used last, and now."""

    incarnation: int
    first: StorageTraffic
    newest: StorageTraffic


REPORTS_PER_S = 1000
"""Reports of nodes about a job that a leader should get per second. More nodes report less often, and windows
are as much longer: a window without half of the nodes is judged for as much as one with all."""
REPORTS_MAX = 4
"""Reports of one node about one job that wait for a window, which usually has one: the newest."""
SLOW_MAX = 20_000
"""Reports of slow steps that wait for a window: one of each node."""
GRADIENTS_MAX = 20_000
"""Reports of gradients that wait for a window: two of each rank, in a job of 10,000."""


def window_s(nodes: int, every_s: float) -> float:
    """How long a window is (s), and how often each of so many nodes reports. `every_s`: as the setting
    `diagnose_every_s`; 0: never."""
    return every_s and max(every_s, nodes / REPORTS_PER_S)


@dataclass(frozen=True, slots=True)
class CollectedReports:
    """What was reported of a job for one window. Nothing in it changes any more."""

    head: dict[str, Any]  # fields of the window that the leader knows already
    reports: list[StepTimes]
    slow: list[SlowSteps]
    seating: Seating

    def window(self) -> JobWindow:
        """The window, for any thread to make."""
        from controlplane.daemon.diagnosis.step_rows import StepRows  # numpy

        rows = StepRows(self.reports, self.seating)
        return JobWindow(
            **self.head,
            ranks=rows.columns(),
            work=rows.works(),
            ends=rows.ends(),
            slow=tuple(_slow_rows(self.slow, self.seating.generation)),
            slow_more=sum(each.more for each in self.slow),
        )


class StepFeed:
    """The reports of one leader term that no window has used yet."""

    def __init__(self) -> None:
        self._steps: dict[str, dict[str, deque[StepTimes]]] = defaultdict(dict)  # by job, by node
        self._seatings: dict[str, Seating] = {}  # by job
        self._storage: dict[str, dict[str, _Traffic]] = defaultdict(dict)  # by job, by node
        self._disks: dict[str, dict[str, NodeDisks]] = defaultdict(dict)  # by job, by node
        self._gradients: dict[str, list[GradientReport]] = defaultdict(list)  # by job
        self._slow: dict[str, list[SlowSteps]] = defaultdict(list)  # by job

    def take(self, report: StepTimes) -> None:
        """Add a report to its job's window."""
        self._steps[report.job].setdefault(report.node, deque(maxlen=REPORTS_MAX)).append(report)
        if report.slow is not None and len(self._slow[report.job]) < SLOW_MAX:
            self._slow[report.job].append(report.slow)
        if report.disks is not None:
            self._disks[report.job][report.node] = report.disks
        if report.storage is not None:
            before = self._storage[report.job].get(report.node)
            same = before is not None and before.incarnation == report.incarnation
            first = before.first if before is not None and same else report.storage
            self._storage[report.job][report.node] = _Traffic(report.incarnation, first, report.storage)

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

    def collect(
        self, job: Job, domains: Mapping[str, str], began_s: float, ended_s: float
    ) -> CollectedReports | None:
        """What was reported of this job between the two times, which it forgets; None: nothing, or the job
        has no ranks that train."""
        steps, generation = self._steps.pop(job.name, {}), job.generation
        slow = self._slow.pop(job.name, [])
        if not steps or generation is None:
            return None
        costs, choice = job.checkpoints.costs, job.checkpoints.choice
        head = {
            "job": job.name,
            "generation": generation.number,
            "began_s": began_s,
            "ended_s": ended_s,
            "ranks_expected": len(generation.seats),
            "storage": self._moved(job.name),
            "disks": self._room(job.name),
            "gradients": tuple(self._gradients.pop(job.name, ())),
            "checkpoints": costs.uploads,
            "checkpoint_took_s": costs.newest_upload_s,
            "checkpoint_every_s": choice.interval_s if choice is not None else job.spec.checkpoint_every_s,
        }
        reports = list(chain.from_iterable(steps.values()))
        return CollectedReports(head, reports, slow, self._seating(job, generation, domains))

    def _seating(self, job: Job, generation: Generation, domains: Mapping[str, str]) -> Seating:
        from controlplane.daemon.diagnosis.step_rows import Seating  # numpy: not before there are steps

        found = self._seatings.get(job.name)
        if found is None or found.generation is not generation or found.domains != domains:
            spec = job.spec
            found = self._seatings[job.name] = Seating(
                generation,
                dict(domains),
                tp=spec.tensor_parallel,
                pp=spec.pipeline_parallel,
                cp=spec.context_parallel,
            )
        return found

    def forget(self, jobs: set[str]) -> None:
        """Forget the reports about all jobs but these."""
        by_node = (self._steps, self._storage, self._disks)
        for kept in (*by_node, self._gradients, self._slow, self._seatings):
            for job in [name for name in kept if name not in jobs]:
                del kept[job]


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
    failures = ", ".join(f"{times} x {in_words(cause)}" for cause, times in record.causes) if record else ""
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
