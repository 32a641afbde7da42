"""Translate between protobuf messages and the core's records.

Events travel from agents to the coordinator, orders (effects) from the coordinator to agents. Both ends use
this module, so agent and core work with the same frozen records. The mapping is made from the fields of the
records: a message has the fields of its record, without those that the stream already implies (the node and,
in an event, its incarnation)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-not-found]

from controlplane.core.records import effects, events, model
from controlplane.core.records.diagnosis import (
    GradientReport,
    LinksProbed,
    ProbeLinks,
    ProfileRank,
    RankEnded,
    RankProfiled,
    StepTimes,
)
from controlplane.core.records.logs import ReadLog
from controlplane.core.records.node_checks import NodeSensed
from controlplane.core.rows import HealthRow, JobRow, NodeRow, RankRow
from controlplane.wire import bounds, versions
from controlplane.wire import control_pb2 as pb
from controlplane.wire.greetings import Greeting as Greeting  # noqa: PLC0414 - for daemons to import from here
from controlplane.wire.greetings import Refused as Refused  # noqa: PLC0414 - the same
from controlplane.wire.greetings import Welcome as Welcome  # noqa: PLC0414 - the same
from controlplane.wire.mapping import PROFILED, RECORDS, Mapping
from controlplane.wire.relayed import SHORT_BEAT, BeatsTaken, RelayBeats
from controlplane.wire.shape import WireError as WireError  # noqa: PLC0414 - for agents to import from here
from controlplane.wire.unreadable import leave_out
from controlplane.wire.versions import PROTOCOL_VERSION as PROTOCOL_VERSION  # noqa: PLC0414 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

MESSAGE_BYTES_MAX = 4 << 20
"""The largest message that either end accepts."""

AGAIN_MAX_S = 60.0
"""No coordinator can keep an agent away for longer than this."""

Order = (
    effects.Launch
    | effects.Interrupt
    | effects.Form
    | effects.Kill
    | effects.Complete
    | effects.Return
    | effects.Release
    | effects.Persist
    | effects.Seal
    | effects.Mirror
    | effects.Collect
    | effects.Scrub
    | effects.Replicate
    | effects.Discard
    | effects.Fetch
    | effects.CheckpointTold
    | effects.CollectStacks
    | effects.LookAtPeers
    | effects.CheckNode
    | effects.Drained
    | effects.Publish
    | effects.Load
    | ProfileRank
    | ProbeLinks
    | ReadLog
    | RelayBeats
    | BeatsTaken
)
"""The orders to agents: effects of the core, and what people, diagnosis or the server itself ask for."""

AgentEvent = events.Event | StepTimes | RankProfiled | LinksProbed | RankEnded | GradientReport | NodeSensed
"""What agents send after their hello: events of the core, and what only diagnosis and profiles read.
Heartbeats of other nodes are apart (relayed.py)."""


_HELLO = Mapping(events.NodeJoined, pb.Hello, 0, "node incarnation")

_EVENTS: dict[str, Mapping] = {
    "beat": Mapping(events.NodeBeat, pb.Beat, 2),
    "step_beat": SHORT_BEAT,
    "report": Mapping(events.MemberReport, pb.Report, 2),
    "started": Mapping(events.MemberStarted, pb.Started, 2, "member job generation"),
    "snapshot_ready": Mapping(events.SnapshotReady, pb.SnapshotReady, 2, "member job"),
    "snapshot_vouched": Mapping(events.SnapshotVouched, pb.SnapshotVouched, 2, "member job digest"),
    "part_persisted": Mapping(events.PartPersisted, pb.PartPersisted, 2),
    "persisted": Mapping(events.Persisted, pb.Persisted, 2),
    "persist_failed": Mapping(events.PersistFailed, pb.PersistFailed, 2, "job checkpoint"),
    "published": Mapping(events.Published, pb.Published, 2, "job checkpoint"),
    "loaded": Mapping(events.Loaded, pb.Loaded, 2, "job checkpoint"),
    "mirrored": Mapping(events.Mirrored, pb.Mirrored, 2, "job checkpoint"),
    "collected": Mapping(events.Collected, pb.Collected, 2, "job"),
    "scrubbed": Mapping(events.Scrubbed, pb.Scrubbed, 2, "job checkpoint"),
    "checkpoint_asked": Mapping(events.CheckpointAsked, pb.CheckpointAsked, 2, "job member request"),
    "fetched": Mapping(events.Fetched, pb.Fetched, 2, "job member source"),
    "order_failed": Mapping(events.OrderFailed, pb.OrderFailed, 2, "job member"),
    "device": Mapping(events.DeviceReport, pb.Device, 2, "device"),
    "stacks_collected": Mapping(events.StacksCollected, pb.StacksCollected, 2, "job"),
    "user_fault": Mapping(events.UserFault, pb.UserFault, 2, "job member kind"),
    "replicas_reported": Mapping(events.ReplicasReported, pb.ReplicasReported, 2, "job member"),
    "leaving": Mapping(events.NodeLeaving, pb.Leaving, 2),
    "peers_looked": Mapping(events.PeersLooked, pb.PeersLooked, 2),
    "node_checked": Mapping(events.NodeChecked, pb.NodeChecked, 2),
    "step_times": Mapping(StepTimes, pb.StepTimes, 2, "job"),
    "profiled": PROFILED,
    "links_probed": Mapping(LinksProbed, pb.LinksProbed, 2, "job"),
    "rank_ended": Mapping(RankEnded, pb.RankEnded, 2, "job member"),
    "gradients": Mapping(GradientReport, pb.Gradients, 2, "job member"),
    "node_sensed": Mapping(NodeSensed, pb.NodeSensed, 2),
}
_ORDERS: dict[str, Mapping] = {
    "launch": Mapping(effects.Launch, pb.Launch, 1, "member"),
    "interrupt": Mapping(effects.Interrupt, pb.Interrupt, 1, "job"),
    "form": Mapping(effects.Form, pb.Form, 1),
    "kill": Mapping(effects.Kill, pb.Kill, 1, "member"),
    "complete": Mapping(effects.Complete, pb.Complete, 1, "job"),
    "returning": Mapping(effects.Return, pb.Return, 1, "job"),
    "release": Mapping(effects.Release, pb.Release, 1, "job"),
    "persist": Mapping(effects.Persist, pb.Persist, 1, "member checkpoint"),
    "seal": Mapping(effects.Seal, pb.Seal, 1, "checkpoint"),
    "mirror": Mapping(effects.Mirror, pb.Mirror, 1),
    "collect": Mapping(effects.Collect, pb.Collect, 1),
    "scrub": Mapping(effects.Scrub, pb.Scrub, 1),
    "replicate": Mapping(effects.Replicate, pb.Replicate, 1, "job"),
    "discard": Mapping(effects.Discard, pb.Discard, 1, "job"),
    "fetch": Mapping(effects.Fetch, pb.Fetch, 1, "member source address"),
    "checkpoint_told": Mapping(effects.CheckpointTold, pb.CheckpointTold, 1, "job member request"),
    "drained": Mapping(effects.Drained, pb.Drained, 1),
    "look_at_peers": Mapping(effects.LookAtPeers, pb.LookAtPeers, 1),
    "check_node": Mapping(effects.CheckNode, pb.CheckNode, 1),
    "collect_stacks": Mapping(effects.CollectStacks, pb.CollectStacks, 1, "job"),
    "publish": Mapping(effects.Publish, pb.Publish, 1),
    "load": Mapping(effects.Load, pb.Load, 1, "member"),
    "profile": Mapping(ProfileRank, pb.Profile, 1, "job member request"),
    "probe_links": Mapping(ProbeLinks, pb.ProbeLinks, 1, "job"),
    "read_log": Mapping(ReadLog, pb.ReadLog, 1, "job request"),
    "relay_beats": Mapping(RelayBeats, pb.RelayBeats, 1),
    "beats_taken": Mapping(BeatsTaken, pb.BeatsTaken, 1),
}
_ROWS: dict[type, Mapping] = {
    JobRow: Mapping(JobRow, pb.JobRow),
    NodeRow: Mapping(NodeRow, pb.NodeRow),
    RankRow: Mapping(RankRow, pb.RankRow),
    HealthRow: Mapping(HealthRow, pb.HealthRow),
    model.CheckpointRecord: RECORDS[model.CheckpointRecord],
}
_BODY_OF_EVENT = {mapping.record: body for body, mapping in _EVENTS.items()}
_BODY_OF_ORDER = {mapping.record: body for body, mapping in _ORDERS.items()}


def fields_of_event(body: str) -> set[str]:
    """Return the fields of this body of an AgentMessage that are filled from its event."""
    return set(_EVENTS[body].names)


def fields_of_order(body: str) -> set[str]:
    """Return the fields of this body of a CoordinatorMessage that are filled from its order."""
    return set(_ORDERS[body].names)


def parse_agent(data: bytes) -> pb.AgentMessage:
    """Return the message in an agent's bytes. Raises WireError when they hold none."""
    try:
        return pb.AgentMessage.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes that are not an AgentMessage") from error


def event_from(node: str, incarnation: int, message: pb.AgentMessage) -> AgentEvent:
    """Return the event in an agent's message. Raises WireError, also on a hello: that is for
    `greeting_from`."""
    body = message.WhichOneof("body")
    mapping = _EVENTS.get(body or "")
    if mapping is None:
        raise WireError(f"AgentMessage.body is {body or _unknown(message)}: not an event")
    event: AgentEvent = mapping.read(getattr(message, body), node, incarnation)
    bounds.check(event)
    if isinstance(event, StepTimes):
        bounds.check_columns(event)
        for each in (event.disks, event.slow):
            if each is not None:
                bounds.check_columns(each)
    return event


def rest_of(node: str, incarnation: int, message: pb.AgentMessage) -> events.NodeBeat | None:
    """Return what is readable of a beat that `event_from` could not read; None when the message is not a
    beat.

    Unreadable members and copies are left out. Raises WireError when anything else in it cannot be read."""
    if message.WhichOneof("body") != "beat":
        return None
    unread = leave_out(message.beat)
    beat: events.NodeBeat = _EVENTS["beat"].read(message.beat, node, incarnation)
    bounds.check(beat)
    return dataclasses.replace(beat, unread=unread)


def greeting_from(message: pb.AgentMessage) -> Greeting:
    """Return the hello of an agent. Raises WireError when the message is another one, or incomplete.

    Unreadable members and copies are left out, and `unread` says why."""
    if message.WhichOneof("body") != "hello":
        raise WireError("the first message of a stream must be a hello")
    hello = message.hello
    for name in ("protocol_version", "term_seen"):
        if reason := bounds.beyond("Hello", name, getattr(hello, name)):
            raise WireError(reason)
    why = ""
    try:
        joined = _hello(hello)
    except WireError as error:
        why, unread = str(error), leave_out(hello)
        joined = dataclasses.replace(_hello(hello), unread=unread)
    header = hello.protocol_version, hello.cluster, hello.term_seen, hello.holdfast_version
    return Greeting(*header, joined, versions.NEW_ORDERS.intersection(hello.takes), why)


def _hello(message: Any) -> events.NodeJoined:
    joined: events.NodeJoined = _HELLO.read(message)
    bounds.check(joined)
    return joined


def _unknown(message: Any) -> str:
    """Describe a message whose body this version does not know."""
    numbers = [str(each.field_number) for each in UnknownFieldSet(message)]
    return f"of a newer version (field {', '.join(numbers)})" if numbers else "empty"


def to_coordinator(event: AgentEvent) -> pb.AgentMessage:
    """Return the message by which an agent reports an event. Node and incarnation are those of its stream."""
    body = _BODY_OF_EVENT.get(type(event))
    if body is None:
        raise WireError(f"{type(event).__name__} is not sent by agents")
    return pb.AgentMessage(**{body: _EVENTS[body].write(event)})


def is_heard(message: pb.AgentMessage, hears: frozenset[str]) -> bool:
    """Return whether a coordinator whose welcome names these new bodies understands this message."""
    body = message.WhichOneof("body")
    return body not in versions.NEW_WORDS or body in hears


def is_taken(effect: Order, takes: frozenset[str]) -> bool:
    """Return whether an agent whose hello names these new orders understands this one."""
    body = _BODY_OF_ORDER.get(type(effect))
    return body not in versions.NEW_ORDERS or body in takes


def hello(joined: events.NodeJoined, cluster: str, term_seen: int, version: str = "") -> pb.AgentMessage:
    """Return the first message of an agent's stream."""
    more = {"protocol_version": PROTOCOL_VERSION, "cluster": cluster, "term_seen": term_seen}
    more |= {"takes": sorted(versions.NEW_ORDERS)}
    joined = dataclasses.replace(joined, holdfast_version=version or joined.holdfast_version)
    return pb.AgentMessage(hello=_HELLO.write(joined, **more))


def to_agent(effect: Order, term: int, incident: str = "") -> pb.CoordinatorMessage:
    """Return the message of an order. `incident` ("job/number") names what it is part of, for the agent's
    logs.

    Raises WireError for an effect that is not an order."""
    body = _BODY_OF_ORDER.get(type(effect))
    if body is None:
        raise WireError(f"{type(effect).__name__} is not an order to an agent")
    return pb.CoordinatorMessage(term=term, incident=incident, **{body: _ORDERS[body].write(effect)})


def welcome(
    cluster: str,
    beat_interval_s: float,
    term: int,
    step_times_every_s: float = 0.0,
    *,
    snapshots_by_beats: bool = False,
    beat_key: bytes = b"",
) -> pb.CoordinatorMessage:
    """Return the answer to a hello that is accepted."""
    return pb.CoordinatorMessage(
        term=term,
        welcome=pb.Welcome(
            cluster=cluster,
            beat_interval_s=beat_interval_s,
            hears=sorted(versions.NEW_WORDS),
            step_times_every_s=step_times_every_s,
            snapshots_by_beats=snapshots_by_beats,
            beat_key=beat_key,
        ),
    )


def refused(
    reason: str, *, retry: bool, leader: str = "", term: int = 0, again_after_s: float = 0.0
) -> pb.CoordinatorMessage:
    """Return the answer to a hello that is refused; the stream ends after it."""
    answer = pb.Refused(reason=reason, retry=retry, leader=leader, again_after_s=again_after_s)
    return pb.CoordinatorMessage(term=term, refused=answer)


def order_from(message: pb.CoordinatorMessage, node: str = "") -> Order | Welcome | Refused:
    """Return what a message holds for the agent of `node`; its term is `message.term`. Raises WireError."""
    body = message.WhichOneof("body")
    if body == "welcome":
        welcomed = message.welcome
        return Welcome(
            welcomed.cluster,
            welcomed.beat_interval_s,
            frozenset(welcomed.hears),
            max(0.0, welcomed.step_times_every_s),
            welcomed.snapshots_by_beats,
            welcomed.beat_key,
        )
    if body == "refused":
        no = message.refused
        return Refused(no.reason, no.retry, no.leader, max(0.0, min(no.again_after_s, AGAIN_MAX_S)))
    mapping = _ORDERS.get(body or "")
    if mapping is None:
        raise WireError(f"CoordinatorMessage.body is {_unknown(message)}: not an order")
    order: Order = mapping.read(getattr(message, body), node)
    return order


def spec_message(spec: model.JobSpec) -> pb.JobSpec:
    """Return a job's specification as a message, for Admin.Submit."""
    message: pb.JobSpec = RECORDS[model.JobSpec].write(spec)
    return message


def spec_from(message: pb.JobSpec) -> model.JobSpec:
    """Return the specification in a request of Admin.Submit. Raises WireError."""
    spec: model.JobSpec = RECORDS[model.JobSpec].read(message)
    bounds.check(spec)
    return spec


def found_from(message: pb.CheckpointRecord) -> model.CheckpointRecord:
    """Return a checkpoint in a request of Admin.Adopt. Raises WireError."""
    record: model.CheckpointRecord = RECORDS[model.CheckpointRecord].read(message)
    bounds.check(record)
    for name in ("step", "generation"):
        if reason := bounds.beyond("AdoptRequest", name, getattr(record, name)):
            raise WireError(reason)
    return record


def row_message(row: Any) -> Any:
    """Return a row of Admin.Status (one of the records in `_ROWS`) as a message."""
    return _ROWS[type(row)].write(row)


def row_from(kind: type[T], message: Any) -> T:
    """Return a row of this kind from an answer of Admin.Status. Raises WireError."""
    row: T = _ROWS[kind].read(message)
    return row


def status_message(cluster: str, term: int, leader: str, rows: dict[str, Any]) -> pb.StatusReply:
    """Return the answer of Admin.Status; `rows` by the name of the reply's field.

    A row that no message can hold is left out, and named among the reasons of the cluster's health, so that
    one bad value does not hide all other rows."""
    rows, unsendable = dict(rows), list[tuple[str, str]]()
    health = rows.pop("health", None)
    lists = {name: _messages(name, values, unsendable) for name, values in rows.items()}
    if unsendable:
        health = health or HealthRow("healthy", (), ())
        worst = "degraded" if health.level == "healthy" else health.level
        reasons = (*health.reasons, *(reason for reason, _ in unsendable))
        health = HealthRow(worst, reasons, (*health.jobs, *(job for _, job in unsendable)))
    health_row = row_message(health) if health is not None else None
    return pb.StatusReply(cluster=cluster, term=term, leader=leader, health=health_row, **lists)


def _messages(name: str, rows: Iterable[Any], unsendable: list[tuple[str, str]]) -> list[Any]:
    """Return the messages of rows. For a row that no message can hold, append (why, job) to `unsendable`."""
    found = []
    for row in rows:
        try:
            found.append(row_message(row))
        except WireError as error:
            what = ", ".join(str(getattr(row, key)) for key in _KEYS if hasattr(row, key))
            unsendable.append((f"{name}: {what} cannot be shown: {error}", getattr(row, "job", "")))
    return found


_KEYS = ("job", "member", "node", "id")
"""The fields that identify a row to people."""
