"""Every record, event and order survives the wire and JSON: a field without a mapping fails here."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
import re
from typing import Any, get_args

import pytest

from controlplane.core import rows
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
from controlplane.core.records.evidence import ReplicasReported
from controlplane.core.records.logs import ReadLog
from controlplane.core.records.node_checks import NodeSensed
from controlplane.wire import codec, records, versions
from controlplane.wire import control_pb2 as pb
from controlplane.wire.mapping import RECORDS
from controlplane.wire.relayed import BeatsTaken, RelayBeats
from controlplane.wire.shape import Shape, WireError, learn, shapes_of

ORDERS = get_args(codec.Order)
FROM_AGENTS = [
    events.NodeBeat,
    events.StepBeat,
    events.MemberReport,
    events.DeviceReport,
    events.MemberStarted,
    events.SnapshotReady,
    events.SnapshotVouched,
    events.PartPersisted,
    events.Persisted,
    events.PersistFailed,
    events.Published,
    events.Mirrored,
    events.Collected,
    events.Scrubbed,
    events.CheckpointAsked,
    events.Fetched,
    events.Loaded,
    events.OrderFailed,
    events.PeersLooked,
    events.NodeLeaving,
    events.NodeChecked,
    events.StacksCollected,
    events.UserFault,
    ReplicasReported,
]
FOR_DIAGNOSIS = [StepTimes, RankProfiled, LinksProbed, RankEnded, GradientReport, NodeSensed]
OF_THE_SHELL = {
    events.Elected,
    events.NodeJoined,
    events.NodeBroken,
    events.NodesHeard,
    events.CheckpointsFound,
    events.ProbeAnswered,
    events.DcsChanged,
    events.LeaderDeaf,
    events.QuarantineReleased,
    events.DrainRequested,
    events.CordonRequested,
    events.CheckpointWanted,
    events.Diagnosed,
    events.CauseFound,
    events.RecordsJudged,
    events.NodeReplaced,
    events.NodeJudged,
    events.PauseRequested,
    events.JobDeleteRequested,
    events.JobSubmitted,
    events.JobStopRequested,
    events.Stored,
    events.StoreFailed,
    events.Tick,
}
ROWS = [rows.JobRow, rows.NodeRow, rows.RankRow, rows.HealthRow]
_NUMBERS = itertools.count(1)


def sample(kind: type, *, full: bool = True) -> Any:
    """A record with a value of its own in every field; not `full`: what is optional is left out."""
    return kind(**{shape.name: _value(shape, full) for shape in shapes_of(kind) if shape.on_wire})


def _value(shape: Shape, full: bool) -> Any:
    if shape.optional and not full:
        return None
    if shape.many:
        return (_one(shape, full), _one(shape, full)) if full else ()
    return _one(shape, full)


def _one(shape: Shape, full: bool) -> Any:
    number = next(_NUMBERS)
    if shape.is_pair:
        return tuple(f"v{number}" if kind is str else number for kind in shape.kind)
    if shape.is_record:
        return sample(shape.kind, full=full)
    if shape.is_enum:
        return list(shape.kind)[number % len(shape.kind)]
    return {str: f"v{number} ü\n", int: number, float: number + 0.5, bool: True}[shape.kind]


def all_records(module: Any) -> list[type]:
    found = [kind for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)]
    return [kind for kind in found if isinstance(kind, type) and kind.__module__ == module.__name__]


def test_no_event_and_no_order_is_forgotten() -> None:
    assert set(get_args(events.Event)) == set(FROM_AGENTS) | OF_THE_SHELL
    assert set(get_args(codec.AgentEvent)) == set(get_args(events.Event)) | set(FOR_DIAGNOSIS)
    of_the_shell = {effects.JudgeNode}
    with_a_node = {kind for kind in get_args(effects.Effect) if shapes_of(kind)[0].name == "node"}
    of_people = {ProfileRank, ProbeLinks, ReadLog}
    of_the_server = {RelayBeats, BeatsTaken}
    not_orders = {effects.Admit, effects.Refuse, *effects.STORES, *of_the_shell}
    assert set(ORDERS) == (with_a_node - not_orders) | of_people | of_the_server


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", [*FROM_AGENTS, *FOR_DIAGNOSIS])
def test_events_on_the_wire(kind: type, full: bool) -> None:
    event = dataclasses.replace(sample(kind, full=full), node="n1", incarnation=7)
    data = codec.to_coordinator(event).SerializeToString()
    assert codec.event_from("n1", 7, codec.parse_agent(data)) == event


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e10])
def test_no_column_holds_an_impossible_number(bad: float) -> None:
    for place in (0, 1):
        waits = (bad, 1.0) if place else (1.0, bad)
        times = dataclasses.replace(sample(StepTimes), communication_s=waits)
        with pytest.raises(WireError, match=r"StepTimes\.communication_s"):
            codec.event_from("n1", 7, codec.to_coordinator(times))


def test_columns_have_one_length() -> None:
    times = dataclasses.replace(sample(StepTimes), data_s=(1.0,))
    with pytest.raises(WireError, match="different lengths"):
        codec.event_from("n1", 7, codec.to_coordinator(times))
    times = dataclasses.replace(sample(StepTimes), ran_s=(1.0,))
    with pytest.raises(WireError, match="different lengths"):
        codec.event_from("n1", 7, codec.to_coordinator(times))


def test_an_older_agent_reports_no_counts_of_cpu_time() -> None:
    old = dataclasses.replace(
        sample(StepTimes), node="n1", incarnation=7,
        watched_s=(), ran_s=(), queued_s=(), throttled_s=(), cpu_limits=(),
    )  # fmt: skip
    assert codec.event_from("n1", 7, codec.to_coordinator(old)) == old


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", ORDERS)
def test_orders_on_the_wire(kind: type, full: bool) -> None:
    order = dataclasses.replace(sample(kind, full=full), node="n1")
    message = pb.CoordinatorMessage.FromString(codec.to_agent(order, 9).SerializeToString())
    assert message.term == 9
    assert codec.order_from(message, "n1") == order


def test_a_node_that_was_cut_is_asked_for_no_job_whether_it_reaches_its_peers() -> None:
    order = effects.LookAtPeers("n1", "", 4, (model.PeerAddress("n2", "10.0.0.2:4000"),))
    message = codec.to_agent(order, 3)
    assert codec.order_from(message, "n1") == order


@pytest.mark.parametrize("full", [True, False])
def test_hello_welcome_refused(full: bool) -> None:
    joined = dataclasses.replace(sample(events.NodeJoined, full=full), holdfast_version="1.2")
    message = codec.parse_agent(codec.hello(joined, "prod", 5, "1.2").SerializeToString())
    said = codec.PROTOCOL_VERSION, "prod", 5, "1.2", joined, versions.NEW_ORDERS
    assert codec.greeting_from(message) == codec.Greeting(*said)
    assert codec.order_from(codec.welcome("prod", 1.5, 3)) == codec.Welcome("prod", 1.5, versions.NEW_WORDS)
    refused = codec.refused("no", retry=True, leader="h:1", term=2)
    assert codec.order_from(refused) == codec.Refused("no", True, "h:1")


@pytest.mark.parametrize("kind", [*ROWS, model.CheckpointRecord])
def test_rows_of_status(kind: type) -> None:
    row = sample(kind)
    assert codec.row_from(kind, codec.row_message(row)) == row


def test_job_specification() -> None:
    spec = sample(model.JobSpec)
    assert codec.spec_from(codec.spec_message(spec)) == spec


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", [*all_records(model), *all_records(events), *all_records(effects)])
def test_records_as_json(kind: type, full: bool) -> None:
    record = sample(kind, full=full)
    assert records.unpack(kind, records.pack(record)) == record


def test_messages_have_no_field_that_no_record_fills() -> None:
    for mapping in RECORDS.values():
        assert set(mapping.names) == set(mapping.message.DESCRIPTOR.fields_by_name)
    for body in pb.AgentMessage.DESCRIPTOR.oneofs_by_name["body"].fields:
        apart = {"hello", versions.BEATS_RELAYED}  # read by hand (wire/relayed.py)
        assert body.name in apart or codec.fields_of_event(body.name) == set(body.message_type.fields_by_name)
    for body in pb.CoordinatorMessage.DESCRIPTOR.oneofs_by_name["body"].fields:
        known = {"welcome", "refused"}
        assert body.name in known or codec.fields_of_order(body.name) == set(body.message_type.fields_by_name)


def _report(**changes: Any) -> pb.AgentMessage:
    status = model.MemberStatus("j.1", "j", model.MemberPhase.WARM, failure=sample(model.Failure))
    message = codec.to_coordinator(events.MemberReport("n", 1, 1, status))
    for name, value in changes.items():
        setattr(message.report.status, name, value)
    return message


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (_report(phase="dancing"), "MemberStatus.phase: 'dancing' is not one of launched, warm"),
        (_report(role=""), "MemberStatus.role"),
        (_report(member=""), "MemberStatus.member is missing"),
        (_report(stalled_s=math.inf), "MemberStatus.stalled_s: inf is not a finite number"),
        (_report(stalled_s=math.nan), "MemberStatus.stalled_s: nan is not a finite number"),
        (
            pb.AgentMessage(leaving=pb.Leaving(deadline_s=-math.inf)),
            "Leaving.deadline_s: -inf is not a finite",
        ),
        (pb.AgentMessage(report=pb.Report(seq=1)), "Report.status is missing"),
        (pb.AgentMessage(persisted=pb.Persisted()), "Persisted.record is missing"),
        (pb.AgentMessage(), "AgentMessage.body is empty"),
        (pb.AgentMessage(hello=pb.Hello()), "hello"),
    ],
)
def test_content_that_cannot_be_is_named(message: pb.AgentMessage, said: str) -> None:
    with pytest.raises(WireError, match=re.escape(said)):
        codec.event_from("n", 1, message)


@pytest.mark.parametrize("text", ["\ud800", "x" * 3])
def test_what_protobuf_cannot_hold(text: str) -> None:
    event = events.PersistFailed("n", 1, "job", "5-1", text)
    if text == "\ud800":
        with pytest.raises(WireError, match="PersistFailed cannot hold"):
            codec.to_coordinator(event)
    else:
        codec.to_coordinator(event)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": 2}, "format 2"),
        ({"phase": "dancing"}, "JobState.phase: 'dancing' is not one of"),
        ({"incidents": "3"}, "JobState.incidents: '3' is not of type int"),
        ({"incidents": True}, "JobState.incidents: True is not of type int"),
        ({"failures_seen": [["a"]]}, "is not a pair"),
        ({"failures_seen": {}}, "is not a list"),
        ({"job": None}, "JobState.job"),
    ],
)
def test_json_that_cannot_be_is_named(change: dict[str, Any], said: str) -> None:
    document = json.loads(records.pack(sample(model.JobState))) | change
    with pytest.raises(WireError, match=re.escape(said)):
        records.unpack(model.JobState, json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_record(data: bytes) -> None:
    with pytest.raises(WireError, match="a JobState"):
        records.unpack(model.JobState, data)


def test_json_of_a_newer_holdfast_is_read_without_what_we_do_not_know() -> None:
    state = sample(model.JobState)
    document = json.loads(records.pack(state)) | {"from_the_future": 1}
    assert records.unpack(model.JobState, json.dumps(document).encode()) == state
    del document["failures_seen"]  # has a default: an older Holdfast did not write it
    assert records.unpack(model.JobState, json.dumps(document).encode()).failures_seen == ()
    del document["job"]
    with pytest.raises(WireError, match=r"JobState\.job is missing"):
        records.unpack(model.JobState, json.dumps(document).encode())


@dataclasses.dataclass(frozen=True)
class _Inner:
    thing: object


@dataclasses.dataclass(frozen=True)
class _Outer:
    inner: tuple[_Inner, ...]


def test_records_are_learned_with_all_that_is_in_them() -> None:
    learn([*get_args(events.Event), *get_args(effects.Effect)])
    with pytest.raises(TypeError, match="field thing: no shape"):
        learn([_Outer])
