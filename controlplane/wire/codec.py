"""The only place where protobuf meets the model: records, events and orders to messages and back.

Events travel from agents to the coordinator, orders (effects) from the coordinator to agents; both sides
use this module, so that agent and core speak of the same frozen records. The mapping is made from the
records' own fields: a message has the fields of its record, less the node it travels from or to."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError, Message

from controlplane.core import effects, events, model
from controlplane.wire import control_pb2 as pb
from controlplane.wire.shape import Shape, WireError, shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL_VERSION = 1
"""Raised by a change that older peers cannot follow."""

MESSAGE_BYTES_MAX = 4 << 20
"""The largest message that either side takes."""

Order = (
    effects.Launch
    | effects.Interrupt
    | effects.Form
    | effects.Kill
    | effects.Complete
    | effects.Release
    | effects.Persist
    | effects.Publish
    | effects.Load
)
"""The effects that travel to an agent."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The coordinator took the hello."""

    cluster: str
    beat_interval_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The coordinator did not take the hello. `leader` (host:port) says who may; "" when unknown."""

    reason: str
    retry: bool
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a hello says besides the NodeJoined event that it carries."""

    protocol_version: int
    cluster: str
    term_seen: int
    holdfast_version: str
    joined: events.NodeJoined


class _Mapping:
    """One record class and its message class. `skip` leading fields are not on the wire."""

    def __init__(self, record: type, message: type[Message], skip: int = 0, never_empty: str = "") -> None:
        self.record, self._message = record, message
        shapes = shapes_of(record)[skip:]
        self.names = tuple(shape.name for shape in shapes)
        self._values = _getter(self.names)
        full = frozenset(never_empty.split())
        self._reads = [(i, read) for i, s in enumerate(shapes) if (read := _reader(s, s.name in full))]
        self._writes = [(s.name, write) for s in shapes if (write := _writer(s))]

    def read(self, message: Message, *skipped: Any) -> Any:
        """The record that a message holds. Raises WireError."""
        values = list(self._values(message))
        for index, read in self._reads:
            values[index] = read(message, values[index])
        return self.record(*skipped, *values)

    def write(self, record: Any, **more: Any) -> Any:
        """The message that holds a record. Raises WireError."""
        fields = dict(zip(self.names, self._values(record), strict=True))
        for name, write in self._writes:
            fields[name] = write(fields[name])
        try:
            return self._message(**fields, **more)
        except (ValueError, TypeError) as error:
            raise WireError(f"{self._message.__name__} cannot hold {record!r}: {error}") from error


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda source: (get(source),)


def _reader(shape: Shape, never_empty: bool) -> Callable[[Message, Any], Any] | None:
    """How a field of a message becomes a field of a record; None: it is the same."""
    if shape.many:
        return _list_reader(shape)
    if shape.is_record or shape.optional:
        return _present(shape, _RECORDS[shape.kind].read if shape.is_record else lambda value: value)
    if shape.is_enum:
        return _word(shape)
    return _filled(shape) if never_empty else None


def _list_reader(shape: Shape) -> Callable[[Message, Any], Any]:
    if shape.is_pair:
        pair = _PAIR_READ[shape.kind]
        return lambda _message, value: tuple(map(pair, value))
    if shape.is_record:
        read = _RECORDS[shape.kind].read
        return lambda _message, value: tuple(map(read, value))
    return lambda _message, value: tuple(value)


def _present(shape: Shape, read: Callable[[Any], Any]) -> Callable[[Message, Any], Any]:
    def check(message: Message, value: Any) -> Any:
        if message.HasField(shape.name):
            return read(value)
        if shape.optional:
            return None
        raise WireError(f"{type(message).__name__}.{shape.name} is missing")

    return check


def _word(shape: Shape) -> Callable[[Message, Any], Any]:
    words = {word.value: word for word in shape.kind}

    def read(message: Message, value: Any) -> Any:
        word = words.get(value)
        if word is None:
            known = ", ".join(words)
            raise WireError(f"{type(message).__name__}.{shape.name}: {value!r} is none of {known}")
        return word

    return read


def _filled(shape: Shape) -> Callable[[Message, Any], Any]:
    def check(message: Message, value: Any) -> Any:
        if not value:
            raise WireError(f"{type(message).__name__}.{shape.name} is missing")
        return value

    return check


def _writer(shape: Shape) -> Callable[[Any], Any] | None:
    """How a field of a record becomes a field of a message; None: it is the same."""
    if shape.is_pair:
        return lambda value: [_PAIR_WRITE[shape.kind](*item) for item in value]
    if shape.is_record and shape.many:
        return lambda value: list(map(_RECORDS[shape.kind].write, value))
    if shape.is_record:
        return lambda value: None if value is None else _RECORDS[shape.kind].write(value)
    return None


_PAIR_READ: dict[Any, Callable[[Any], tuple[Any, Any]]] = {
    (str, str): attrgetter("name", "value"),
    (int, int): attrgetter("rank", "step"),
}
_PAIR_WRITE: dict[Any, Callable[[Any, Any], Message]] = {
    (str, str): lambda name, value: pb.EnvVar(name=name, value=value),
    (int, int): lambda rank, step: pb.RankStep(rank=rank, step=step),
}

_RECORDS: dict[type, _Mapping] = {}
for _record, _type, _never_empty in (
    (model.JobSpec, pb.JobSpec, "job"),
    (model.Failure, pb.Failure, ""),
    (model.MemberStatus, pb.MemberStatus, "member job"),
    (model.Placement, pb.Placement, "member node"),
    (model.Resume, pb.Resume, ""),
    (model.Generation, pb.Generation, "job number"),
    (model.CheckpointRecord, pb.CheckpointRecord, "job id"),
):
    _RECORDS[_record] = _Mapping(_record, _type, 0, _never_empty)

_HELLO = _Mapping(events.NodeJoined, pb.Hello, 0, "node incarnation")

_EVENTS: dict[str, _Mapping] = {
    "beat": _Mapping(events.NodeBeat, pb.Beat, 2),
    "report": _Mapping(events.MemberReport, pb.Report, 2),
    "started": _Mapping(events.MemberStarted, pb.Started, 2, "member job generation"),
    "snapshot_ready": _Mapping(events.SnapshotReady, pb.SnapshotReady, 2, "member job"),
    "persisted": _Mapping(events.Persisted, pb.Persisted, 2),
    "persist_failed": _Mapping(events.PersistFailed, pb.PersistFailed, 2, "job checkpoint"),
    "published": _Mapping(events.Published, pb.Published, 2, "job checkpoint"),
    "loaded": _Mapping(events.Loaded, pb.Loaded, 2, "job checkpoint"),
    "order_failed": _Mapping(events.OrderFailed, pb.OrderFailed, 2, "job member"),
    "device": _Mapping(events.DeviceReport, pb.Device, 2, "device"),
}
_ORDERS: dict[str, _Mapping] = {
    "launch": _Mapping(effects.Launch, pb.Launch, 1, "member"),
    "interrupt": _Mapping(effects.Interrupt, pb.Interrupt, 1, "job"),
    "form": _Mapping(effects.Form, pb.Form, 1),
    "kill": _Mapping(effects.Kill, pb.Kill, 1, "member"),
    "complete": _Mapping(effects.Complete, pb.Complete, 1, "job"),
    "release": _Mapping(effects.Release, pb.Release, 1, "job"),
    "persist": _Mapping(effects.Persist, pb.Persist, 1, "member checkpoint"),
    "publish": _Mapping(effects.Publish, pb.Publish, 1),
    "load": _Mapping(effects.Load, pb.Load, 1, "member"),
}
_BODY_OF_EVENT = {mapping.record: body for body, mapping in _EVENTS.items()}
_BODY_OF_ORDER = {mapping.record: body for body, mapping in _ORDERS.items()}


def parse_agent(data: bytes) -> pb.AgentMessage:
    """Bytes of an agent as a message. Raises WireError when they are none."""
    try:
        return pb.AgentMessage.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes that are no AgentMessage") from error


def event_from(node: str, incarnation: int, message: pb.AgentMessage) -> events.Event:
    """What an agent says, as an event. Raises WireError; a hello is for `greeting_from`."""
    body = message.WhichOneof("body")
    mapping = _EVENTS.get(body or "")
    if mapping is None:
        raise WireError(f"AgentMessage.body is {body or 'empty or of a newer protocol'}: no event")
    event: events.Event = mapping.read(getattr(message, body), node, incarnation)
    return event


def greeting_from(message: pb.AgentMessage) -> Greeting:
    """The hello of an agent. Raises WireError when the message is another, or incomplete."""
    if message.WhichOneof("body") != "hello":
        raise WireError("the first message of a stream must be a hello")
    hello = message.hello
    joined: events.NodeJoined = _HELLO.read(hello)
    return Greeting(hello.protocol_version, hello.cluster, hello.term_seen, hello.holdfast_version, joined)


def to_coordinator(event: events.Event) -> pb.AgentMessage:
    """An event as the message by which an agent tells it (node and incarnation are the stream's)."""
    body = _BODY_OF_EVENT.get(type(event))
    if body is None:
        raise WireError(f"{type(event).__name__} does not travel from an agent")
    return pb.AgentMessage(**{body: _EVENTS[body].write(event)})


def hello(joined: events.NodeJoined, cluster: str, term_seen: int, version: str = "") -> pb.AgentMessage:
    """The first message of an agent's stream."""
    more = {"protocol_version": PROTOCOL_VERSION, "cluster": cluster, "term_seen": term_seen}
    return pb.AgentMessage(hello=_HELLO.write(joined, holdfast_version=version, **more))


def to_agent(effect: Order, term: int) -> pb.CoordinatorMessage:
    """An order as the message that carries it. Raises WireError for an effect that is no order."""
    body = _BODY_OF_ORDER.get(type(effect))
    if body is None:
        raise WireError(f"{type(effect).__name__} is no order to an agent")
    return pb.CoordinatorMessage(term=term, **{body: _ORDERS[body].write(effect)})


def welcome(cluster: str, beat_interval_s: float, term: int) -> pb.CoordinatorMessage:
    """The answer to a hello that was taken."""
    return pb.CoordinatorMessage(
        term=term, welcome=pb.Welcome(cluster=cluster, beat_interval_s=beat_interval_s)
    )


def refused(reason: str, *, retry: bool, leader: str = "", term: int = 0) -> pb.CoordinatorMessage:
    """The answer to a hello that was not taken; the stream ends after it."""
    return pb.CoordinatorMessage(term=term, refused=pb.Refused(reason=reason, retry=retry, leader=leader))


def order_from(message: pb.CoordinatorMessage, node: str = "") -> Order | Welcome | Refused:
    """What the coordinator says to the agent of `node`; its term is `message.term`. Raises WireError."""
    body = message.WhichOneof("body")
    if body == "welcome":
        return Welcome(message.welcome.cluster, message.welcome.beat_interval_s)
    if body == "refused":
        return Refused(message.refused.reason, message.refused.retry, message.refused.leader)
    mapping = _ORDERS.get(body or "")
    if mapping is None:
        raise WireError("CoordinatorMessage.body is empty or of a newer protocol")
    order: Order = mapping.read(getattr(message, body), node)
    return order


def spec_message(spec: model.JobSpec) -> pb.JobSpec:
    """A job's specification as a message, for Admin.Submit."""
    message: pb.JobSpec = _RECORDS[model.JobSpec].write(spec)
    return message


def spec_from(message: pb.JobSpec) -> model.JobSpec:
    """The specification that Admin.Submit brings. Raises WireError."""
    spec: model.JobSpec = _RECORDS[model.JobSpec].read(message)
    return spec


def checkpoint_message(record: model.CheckpointRecord) -> pb.CheckpointRecord:
    """A checkpoint's record as a message, for Admin.Status."""
    message: pb.CheckpointRecord = _RECORDS[model.CheckpointRecord].write(record)
    return message


def checkpoint_from(message: pb.CheckpointRecord) -> model.CheckpointRecord:
    """The checkpoint's record that Admin.Status brings. Raises WireError."""
    record: model.CheckpointRecord = _RECORDS[model.CheckpointRecord].read(message)
    return record
