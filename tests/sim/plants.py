"""Plant bugs on purpose: a simulator that does not find them would prove nothing.

fence: etcd takes the writes of a leader whose term is over.
persist: the leader is told that a generation is in etcd before it is.
quorum: an off-by-one in the least number of nodes.
timer: a deadline that is set gets lost now and then.
fault: an off-by-one in the roll back after a numeric anomaly.
release: one rank's snapshot is taken for that of every rank.
brake: nodes are given up one by one, however many fall silent at once.
deaf: a job whose ranks report nothing but their steps is not looked at.
tail: a rank that was interrupted in a step is taken for one that has completed it.
vouch: fetched copies are not compared with any digest.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.cluster import Cluster
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase
from controlplane.core.state.deadlines import Deadlines

if TYPE_CHECKING:
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.state.deadlines import Key

PLANTS = ("fence", "persist", "quorum", "timer", "fault", "release", "brake", "deaf", "tail", "vouch")
LOSES_EVERY = 7


class Forgetful(Deadlines):
    """Loses every LOSES_EVERY-th deadline of a job or a node."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def sooner(self, key: Key, at: float) -> None:
        self._asked += key[0] in ("job", "node")
        if self._asked % LOSES_EVERY or key[0] not in ("job", "node"):
            super().sooner(key, at)


class OffByOne(Cluster):
    """Takes one node less than the least number for enough."""

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        if isinstance(event, ev.JobSubmitted):
            least = max(1, event.spec.nnodes_min - 1)
            event = dataclasses.replace(event, spec=dataclasses.replace(event.spec, nnodes_min=least))
        return super().step(now, event)


class Forgiving(Cluster):
    """Trusts the state with which the faulty step began."""

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        if isinstance(event, ev.UserFault):
            event = dataclasses.replace(event, step=event.step + 1)
        return super().step(now, event)


class Hasty(Cluster):
    """Takes one rank's snapshot for that of every rank."""

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        effects = super().step(now, event)
        if not isinstance(event, ev.SnapshotReady) or event.job not in self.state.jobs:
            return effects
        for seat in self.state.jobs[event.job].seats:
            incarnation = self.state.nodes[seat.node].incarnation
            told = dataclasses.replace(event, node=seat.node, incarnation=incarnation, member=seat.member)
            effects += super().step(now, told)
        return effects


class Careless(Cluster):
    """Ignores which steps the ranks have completed."""

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        if isinstance(event, ev.NodeBeat | ev.NodeJoined):
            heard = tuple(dataclasses.replace(status, ended_step=None) for status in event.members)
            event = dataclasses.replace(event, members=heard)
        elif isinstance(event, ev.MemberReport):
            status = dataclasses.replace(event.status, ended_step=None)
            event = dataclasses.replace(event, status=status)
        return super().step(now, event)


class Asleep(Deadlines):
    """Sets no deadline for a job that trains and has nothing else under way."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._jobs = cluster.state.jobs

    def sooner(self, key: Key, at: float) -> None:
        job = self._jobs.get(key[1]) if key[0] == "job" else None
        if (
            job is None
            or job.phase is not JobPhase.RUNNING
            or job.checkpoints.savings
            or job.checkpoints.asks
            or job.recovery.incident
        ):
            super().sooner(key, at)


class Deaf(Cluster):
    """Never looks at a job whose ranks report nothing but their steps."""

    def __init__(self, settings: CoreSettings) -> None:
        super().__init__(settings)
        self.state.deadlines = Asleep(self)

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        effects = super().step(now, event)
        for job in self.state.jobs.values():
            job.snapshots.lapse_step = 1 << 62
        return effects


class Gullible(Cluster):
    """Does not give the digest that a fetched copy must have."""

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        effects = super().step(now, event)
        return [dataclasses.replace(e, digest="") if isinstance(e, fx.Fetch) else e for e in effects]


CORES: dict[str, type[Cluster]] = {
    "quorum": OffByOne,
    "fault": Forgiving,
    "release": Hasty,
    "deaf": Deaf,
    "tail": Careless,
    "vouch": Gullible,
}


def cluster(plant: str, settings: CoreSettings) -> Cluster:
    """A leader's core, sound or with a planted bug."""
    if plant == "brake":
        settings = dataclasses.replace(settings, mass_loss_ratio=1.0)
    made = CORES.get(plant, Cluster)(settings)
    if plant == "timer":
        made.state.deadlines = Forgetful()
    return made
