"""Messages of agents, coordinators and people's tools are read as they were meant, and sent as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from controlplane.core import rows
from controlplane.core.records import events, model, words
from controlplane.wire import codec, control_pb2, peer_pb2, relayed
from tests.golden import samples
from tests.golden.commit import Sample, spelled

if TYPE_CHECKING:
    from enum import Enum

EVENTS = {kind.__name__: kind for kind in get_args(codec.AgentEvent)}
ORDERS = {kind.__name__: kind for kind in get_args(codec.Order)}
ROWS: dict[str, type] = {
    "JobRow": rows.JobRow,
    "NodeRow": rows.NodeRow,
    "RankRow": rows.RankRow,
    "HealthRow": rows.HealthRow,
    "CheckpointRecord": model.CheckpointRecord,
}
ROW_MESSAGES: dict[str, Any] = {name: getattr(control_pb2, name) for name in ROWS}
WORDS: dict[str, type[Enum]] = {
    "Cause": words.Cause,
    "JobPhase": words.JobPhase,
    "MemberPhase": words.MemberPhase,
    "Role": words.Role,
    "Scope": words.Scope,
    "Strategy": words.Strategy,
    "Tier": words.Tier,
}
RELAY_KEY = b"k" * 32
CONTRACTS: dict[str, Any] = {"control": control_pb2, "peer": peer_pb2}


def _name(sample: Sample) -> str:
    return f"{sample.get('what', '')}-{sample['kind']}{'' if sample.get('full', True) else '-sparse'}"


def decoded(sample: Sample) -> Any:
    """The record that today's code reads from the sample's bytes; its class is as the sample says."""
    data, what, kind = samples.raw(sample["bytes"]), sample["what"], sample["kind"]
    if what == "event":
        return _of(EVENTS[kind], codec.event_from("n1", 7, codec.parse_agent(data)))
    if what == "order":
        message = control_pb2.CoordinatorMessage.FromString(data)
        assert (message.term, message.incident) == (9, "j/3")
        return _of(ORDERS[kind], codec.order_from(message, "n1"))
    if what == "hello":
        greeting = codec.greeting_from(codec.parse_agent(data))
        assert (greeting.cluster, greeting.term_seen, greeting.unread) == ("prod", 5, "")
        assert greeting.protocol_version == codec.PROTOCOL_VERSION
        return _of(events.NodeJoined, greeting.joined)
    if what in ("welcome", "refused"):
        known = {"welcome": codec.Welcome, "refused": codec.Refused}
        return _of(known[what], codec.order_from(control_pb2.CoordinatorMessage.FromString(data)))
    if what == "row":
        return codec.row_from(ROWS[kind], ROW_MESSAGES[kind].FromString(data))
    if what == "relayed":
        sealed = relayed.opened(data)
        assert relayed.is_genuine(sealed, RELAY_KEY)
        return relayed.step_beat(sealed)
    assert what == "spec"
    return codec.spec_from(control_pb2.JobSpec.FromString(data))


def _of(kind: type, record: Any) -> Any:
    assert type(record) is kind
    return record


def encoded(what: str, record: Any) -> bytes:
    """What today's code sends for it."""
    made: dict[str, Any] = {
        "event": lambda: codec.to_coordinator(record),
        "order": lambda: codec.to_agent(record, 9, "j/3"),
        "hello": lambda: codec.hello(record, "prod", 5, "1.2"),
        "welcome": lambda: codec.welcome(
            record.cluster,
            record.beat_interval_s,
            3,
            snapshots_by_beats=record.snapshots_by_beats,
            beat_key=record.beat_key,
        ),
        "refused": lambda: codec.refused(
            record.reason,
            retry=record.retry,
            leader=record.leader,
            term=2,
            again_after_s=record.again_after_s,
        ),
        "row": lambda: codec.row_message(record),
        "spec": lambda: codec.spec_message(record),
    }
    if what == "relayed":
        return relayed.seal("n1", 7, codec.to_coordinator(record).step_beat, RELAY_KEY)
    data: bytes = made[what]().SerializeToString()
    return data


@pytest.mark.parametrize("sample", samples.read("wire"), ids=_name)
def test_a_message_is_read(sample: Sample) -> None:
    assert samples.differs(decoded(sample), sample["values"]) == []


@pytest.mark.parametrize("sample", samples.read("wire", samples.NEWEST), ids=_name)
def test_a_message_is_sent_as_it_was(sample: Sample) -> None:
    assert encoded(sample["what"], decoded(sample)) == samples.raw(sample["bytes"])


def test_there_is_a_sample_of_every_message() -> None:
    kinds = {(sample["what"], sample["kind"]) for sample in samples.read("wire", samples.NEWEST)}
    assert {kind for what, kind in kinds if what == "order"} == set(ORDERS)
    bodies = control_pb2.AgentMessage.DESCRIPTOR.oneofs_by_name["body"].fields
    read_as_events = [each for each in bodies if each.name != "beats_relayed"]
    assert len([kind for what, kind in kinds if what in ("event", "hello")]) == len(read_as_events)
    assert ("relayed", "StepBeat") in kinds, "what is in `beats_relayed`"
    assert {kind for what, kind in kinds if what == "row"} == set(ROWS)


@pytest.mark.parametrize("sample", samples.read("messages"), ids=_name)
def test_a_request_and_a_reply_are_read(sample: Sample) -> None:
    kind = getattr(CONTRACTS[sample["contract"]], sample["kind"])
    found = kind.FromString(samples.raw(sample["bytes"]))
    assert spelled(found) == sample["values"]


@pytest.mark.parametrize("sample", samples.read("messages", samples.NEWEST), ids=_name)
def test_a_request_and_a_reply_are_sent_as_they_were(sample: Sample) -> None:
    kind = getattr(CONTRACTS[sample["contract"]], sample["kind"])
    assert kind(**_unspelled(sample["values"])).SerializeToString() == samples.raw(sample["bytes"])


def _unspelled(values: Any) -> Any:
    if isinstance(values, list):
        return [_unspelled(each) for each in values]
    if not isinstance(values, dict):
        return values
    if values.keys() == {"base64"}:
        return samples.raw(values)
    return {name: _unspelled(value) for name, value in values.items()}


def test_there_is_a_sample_of_every_request_and_reply() -> None:
    kinds = {(sample["contract"], sample["kind"]) for sample in samples.read("messages", samples.NEWEST)}
    for contract, service in (("control", "Admin"), ("peer", "Peer")):
        for method in CONTRACTS[contract].DESCRIPTOR.services_by_name[service].methods:
            assert {(contract, method.input_type.name), (contract, method.output_type.name)} <= kinds


@pytest.mark.parametrize("commit", samples.DIGESTS)
def test_no_word_is_forgotten(commit: str) -> None:
    (stated,) = samples.read("words", commit)
    for name, known in stated.items():
        assert set(known) <= {each.value for each in WORDS[name]}, name
