"""Say which jobs an event touches.

An agent whose certificate names some jobs may send events about those jobs only, and
`controlplane.daemon.server.permitted` asks here which jobs an event is about. So an entry must name every
job that appears in the event, not only the one that its handler reads. `()` means that the event is about
a node, etcd or time. An event class without an entry raises KeyError, so that none is permitted by
omission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.records import events as ev
from controlplane.core.records.diagnosis import (
    GradientReport,
    LinksProbed,
    RankEnded,
    RankProfiled,
    StepTimes,
)
from controlplane.core.records.node_checks import NodeSensed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.core.records.model import CheckpointRecord, Generation, JobSpec, JobState
    from controlplane.core.records.stores import Unread

    JobsOf = Callable[[Any], Iterable[str]]


def jobs(
    event: ev.Event | StepTimes | RankProfiled | LinksProbed | RankEnded | GradientReport | NodeSensed,
) -> tuple[str, ...]:
    """The jobs that an event touches, each once. Raises KeyError for an event class without an entry."""
    return tuple(dict.fromkeys(TOUCHED[type(event)](event)))


def _none(_event: Any) -> Iterable[str]:
    return ()


def _own(event: Any) -> Iterable[str]:
    return (event.job,)


def _of_part(event: ev.PartPersisted) -> Iterable[str]:
    return (event.part.job,)


def _of_record(event: ev.Persisted) -> Iterable[str]:
    return (event.record.job,)


def _of_spec(event: ev.JobSubmitted) -> Iterable[str]:
    return (event.spec.job,)


def _of_status(event: ev.MemberReport) -> Iterable[str]:
    return (event.status.job,)


def _found(event: ev.CheckpointsFound) -> Iterable[str]:
    return (event.job, *(record.job for record in event.records))


def _beaten(event: ev.NodeBeat) -> Iterable[str]:
    return (*(member.job for member in event.members), *(copy.job for copy in event.copies))


def _joined(event: ev.NodeJoined) -> Iterable[str]:
    members, copies = (member.job for member in event.members), (copy.job for copy in event.copies)
    return (*members, *copies, *event.jobs)


def _elected(event: ev.Elected) -> Iterable[str]:
    records: tuple[JobSpec | JobState | Generation | CheckpointRecord | Unread, ...] = (
        *event.specs,
        *event.states,
        *event.generations,
        *event.checkpoints,
        *event.unread,
    )
    return (record.job for record in records)


TOUCHED: dict[type[Any], JobsOf] = {
    ev.Elected: _elected,
    ev.NodeJoined: _joined,
    ev.NodeBeat: _beaten,
    ev.StepBeat: _none,
    ev.NodesHeard: _none,
    ev.MemberReport: _of_status,
    ev.NodeBroken: _none,
    ev.DeviceReport: _none,
    ev.MemberStarted: _own,
    ev.SnapshotReady: _own,
    ev.SnapshotVouched: _own,
    ev.PartPersisted: _of_part,
    ev.Persisted: _of_record,
    ev.PersistFailed: _own,
    ev.Published: _own,
    ev.Mirrored: _own,
    ev.Collected: _own,
    ev.Scrubbed: _own,
    ev.CheckpointAsked: _own,
    ev.CheckpointsFound: _found,
    ev.Fetched: _own,
    ev.Loaded: _own,
    ev.OrderFailed: _own,
    ev.PeersLooked: _none,
    ev.NodeChecked: _none,
    ev.NodeJudged: _none,
    NodeSensed: _none,
    ev.ProbeAnswered: _none,
    ev.DcsChanged: _none,
    ev.QuarantineReleased: _none,
    ev.NodeLeaving: _none,
    ev.NodeReplaced: _none,
    ev.DrainRequested: _none,
    ev.CordonRequested: _none,
    ev.StacksCollected: _own,
    ev.UserFault: _own,
    ev.ReplicasReported: _own,
    StepTimes: _own,
    RankProfiled: _own,
    LinksProbed: _own,
    RankEnded: _own,
    GradientReport: _own,
    ev.JobSubmitted: _of_spec,
    ev.JobStopRequested: _own,
    ev.JobDeleteRequested: _own,
    ev.PauseRequested: _own,
    ev.CheckpointWanted: _own,
    ev.Diagnosed: _own,
    ev.CauseFound: _own,
    ev.RecordsJudged: _own,
    ev.Stored: _none,
    ev.StoreFailed: _none,
    ev.LeaderDeaf: _none,
    ev.Tick: _none,
}
"""For each event class, the function that lists its jobs."""
