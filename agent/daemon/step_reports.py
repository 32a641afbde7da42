"""Report to the leader how the ranks of this node spent their steps, as often as it wants.

Each report is the difference between two looks at the sums on the ranks' progress pages
(`holdfast.ipc.step_times`), and at the kernel's counts of their CPU time. A report that is lost is not sent
again: the next one covers other steps."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.host import cpu_counts
from controlplane.core.records.diagnosis import NodeDisks, SlowSteps, StepTimes, StorageTraffic
from controlplane.core.records.model import MemberPhase
from controlplane.wire.bounds import GENERATION_MAX
from holdfast.ipc.pages import training_end
from holdfast.ipc.pages.slow_steps import SlowStep, SlowStepsPage
from holdfast.ipc.rank_facts import NOTES, RankFacts, RankFactsPage
from holdfast.ipc.step_times import FLOPS_UNIT, NAMES, PHASES, StepSums, StepTimesPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.deciding.member import LocalMember
    from agent.host.cpu_counts import CpuCounts, CpuSpent
    from holdfast.checkpoint.storage.stats import Totals

_IDLE_LOOK_S = 1.0
"""How often to ask whether the leader wants reports, while it wants none."""
_LEVELS = ("last_step", "generation", "longest_ns", "memory_bytes", "memory_peak_bytes")
"""Sums that are none: the newest value counts."""
UNKNOWN = -1.0
"""The use of a device that nobody can read."""
_SUM_MAX = 1 << 53
_STEPS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class _Row:
    """What one rank has done since the last look."""

    member: LocalMember
    sums: StepSums
    cpu: CpuSpent


class StepReports:
    """Reports for the ranks of one node.

    `every_s` returns how often the leader wants a report, in s; 0: never. `send` sends one. `drop(kind,
    reason)` counts what is left out. `storages` returns the traffic of each storage so far. `device_used`
    returns the share of the time in which a rank's GPU computes; UNKNOWN: it has none, or nobody can read
    it. `disks` returns the room on this node's file systems; None: not known."""

    def __init__(
        self,
        node: str,
        incarnation: int,
        members: Iterable[LocalMember],
        *,
        every_s: Callable[[], float],
        send: Callable[[StepTimes], None],
        drop: Callable[[str, str], None],
        storages: Callable[[], Mapping[str, Totals]] = dict,
        device_used: Callable[[LocalMember], float] = lambda _: UNKNOWN,
        disks: Callable[[], NodeDisks | None] = lambda: None,
    ) -> None:
        self._device_used, self._disks = device_used, disks
        self._facts: dict[str, RankFacts] = {}
        self._slow_seen: dict[str, int] = {}  # by member: how many steps were slow at the last look
        self._node, self._incarnation, self._members = node, incarnation, members
        self._every_s, self._send, self._drop, self._storages = every_s, send, drop, storages
        self._before: dict[str, tuple[StepSums, CpuCounts | None]] = {}

    async def run(self) -> None:
        """Report at regular intervals until cancelled."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(self._every_s() or _IDLE_LOOK_S)
            now = time.monotonic()
            if self._every_s():
                for report in self.reports(now - began):
                    self._send(report)
            else:
                self.pause()
            began = now

    def pause(self) -> None:
        """Forget the last look: the next report would cover more than its time."""
        self._before = {}

    def reports(self, span_s: float) -> list[StepTimes]:
        """One report per job with ranks that train here, about the time since the last call (`span_s`).

        A rank that is seen for the first time is left out: how long it took to its sums is not known."""
        rows: dict[str, list[_Row]] = defaultdict(list)
        kept: dict[str, tuple[StepSums, CpuCounts | None]] = {}
        for member in self._members:
            sums = StepTimesPage(member.page).read() if member.alive and member.page is not None else None
            if sums is None:
                continue
            counts = cpu_counts.read(member.status.pid)
            kept[member.name], before = (sums, counts), self._before.get(member.name)
            if before is None or member.status.phase is not MemberPhase.RUNNING or member.status.rank < 0:
                continue
            spent = _since(before[0], sums)
            if _possible(spent):
                rows[member.status.job].append(_Row(member, spent, cpu_counts.between(before[1], counts)))
            else:
                self._drop("step_times", f"{member.name}: impossible sums on its progress page")
        self._before = kept
        self._facts = {name: facts for name, facts in self._facts.items() if name in kept}
        self._slow_seen = {name: count for name, count in self._slow_seen.items() if name in kept}
        return [self._report(job, found, span_s) for job, found in rows.items()]

    def _report(self, job: str, rows: list[_Row], span_s: float) -> StepTimes:
        sums = [row.sums for row in rows]
        ends = [training_end.read(row.member.page) for row in rows]

        def seconds(name: str) -> tuple[float, ...]:
            return tuple(getattr(each, f"{name}_ns") / 1e9 for each in sums)

        return StepTimes(
            node=self._node,
            incarnation=self._incarnation,
            job=job,
            span_s=span_s,
            members=tuple(row.member.name for row in rows),
            ranks=tuple(row.member.status.rank for row in rows),
            generations=tuple(each.generation for each in sums),
            steps=tuple(each.steps for each in sums),
            last_steps=tuple(each.last_step for each in sums),
            covered=tuple(each.covered for each in sums),
            wall_s=seconds("wall"),
            data_s=seconds("data"),
            forward_s=seconds("forward"),
            backward_s=seconds("backward"),
            communication_s=seconds("communication"),
            optimizer_s=seconds("optimizer"),
            snapshot_s=seconds("snapshot"),
            other_s=seconds("other"),
            cpu_s=seconds("cpu"),
            longest_s=seconds("longest"),
            samples=tuple(each.samples for each in sums),
            tokens=tuple(each.tokens for each in sums),
            flops=tuple(each.flops * FLOPS_UNIT for each in sums),
            memory_bytes=tuple(each.memory_bytes for each in sums),
            memory_peak_bytes=tuple(each.memory_peak_bytes for each in sums),
            watched_s=tuple(row.cpu.watched_s for row in rows),
            ran_s=tuple(row.cpu.ran_s for row in rows),
            queued_s=tuple(row.cpu.queued_s for row in rows),
            throttled_s=tuple(row.cpu.throttled_s for row in rows),
            cpu_limits=tuple(row.cpu.cpu_limit for row in rows),
            storage=_traffic(self._storages()),
            disks=self._disks(),
            slow=self._slow_steps(rows),
            end_steps=tuple(step for _, step in ends),
            end_kinds=tuple(kind for kind, _ in ends),
            **self._columns([self._since_last(row.member) for row in rows]),
        )

    def _slow_steps(self, rows: list[_Row]) -> SlowSteps | None:
        """The slow steps of these ranks since they were looked at last; None: there is none."""
        found: list[tuple[int, SlowStep]] = []
        more = 0
        for row in rows:
            name, rank = row.member.name, row.member.status.rank
            count, newest = SlowStepsPage(row.member.page).read()
            new = count - self._slow_seen.get(name, count)
            self._slow_seen[name] = count
            credible = [each for each in newest[-new:] if _credible_step(each)] if new > 0 else []
            found += [(rank, each) for each in credible]
            more += max(0, new - len(credible))
        if not found:
            return None

        seconds = {
            f"{name}_s": tuple(getattr(each, f"{name}_ns") / 1e9 for _, each in found)
            for name in ("usual", "wall", *PHASES)
        }
        return SlowSteps(
            ranks=tuple(rank for rank, _ in found),
            generations=tuple(each.generation for _, each in found),
            at_steps=tuple(each.step for _, each in found),
            more=min(more, _STEPS_MAX),
            **seconds,
        )

    def _columns(self, facts: list[_Since]) -> dict[str, Any]:
        """What ranks know of their work and devices. Ranks with an older SDK tell nothing."""
        return {name: tuple(getattr(each, name) for each in facts) for name in _Since._fields}

    def _since_last(self, member: LocalMember) -> _Since:
        """What a rank's facts say of the time since they were read last."""
        facts = RankFactsPage(member.page).read()
        before = self._facts.get(member.name)
        if facts is None or not _credible(facts):
            return _Since()
        self._facts[member.name] = facts
        used = self._device_used(member)
        if used < 0 and before is not None and facts.at_ns > before.at_ns > 0:
            used = min(1.0, max(0, facts.ran_ns - before.ran_ns) / (facts.at_ns - before.at_ns))
        known = 0 <= facts.note < len(NOTES)
        return _Since(
            facts.memory_limit_bytes,
            facts.memory_reserved_bytes,
            used,
            float(facts.token_flops),
            float(facts.peak_flops),
            NOTES[facts.note] if known else "a newer SDK says so for a reason that this agent does not know",
            *(
                max(0, getattr(facts, name) - getattr(before or facts, name)) / 1e9
                for name in ("compile_ns", "evaluate_ns", "checkpoint_ns")
            ),
        )


class _Since(NamedTuple):
    """The optional columns of one rank's row (`StepTimes`)."""

    memory_limit_bytes: int = 0
    memory_reserved_bytes: int = 0
    device_used: float = UNKNOWN
    token_flops: float = 0.0
    peak_flops: float = 0.0
    compute_notes: str = "its SDK is older than MFU: update it"
    compile_s: float = 0.0
    evaluate_s: float = 0.0
    checkpoint_s: float = 0.0


def _credible(facts: RankFacts) -> bool:
    """Whether a sane process could have written this."""
    return (
        all(value >= 0 for value in astuple(facts))
        and max(facts.memory_limit_bytes, facts.memory_reserved_bytes) <= _SUM_MAX
    )


def _credible_step(step: SlowStep) -> bool:
    """Whether a sane process could have written this."""
    return all(0 <= value <= _SUM_MAX for value in astuple(step)) and step.generation <= GENERATION_MAX


def _traffic(storages: Mapping[str, Totals]) -> StorageTraffic | None:
    """The traffic of the only storage; None where there is none, or several, whose speeds may differ."""
    if len(storages) != 1:
        return None
    (found,) = storages.values()
    return StorageTraffic(found.bytes_written, found.write_s, found.bytes_read, found.read_s)


def _since(before: StepSums, now: StepSums) -> StepSums:
    """What was added since `before`."""
    return StepSums(
        **{name: getattr(now, name) - (0 if name in _LEVELS else getattr(before, name)) for name in NAMES}
    )


def _possible(spent: StepSums) -> bool:
    """Whether a sane process could have written this: one bad page must not cost the whole node's report."""
    return (
        spent.last_step >= -1
        and all(0 <= getattr(spent, name) <= _SUM_MAX for name in NAMES if name != "last_step")
        and spent.covered <= spent.steps <= _STEPS_MAX
    )
