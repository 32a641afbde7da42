"""Map one record class to one message class, field by field, from the record's own annotations."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from controlplane.core.records import model
from controlplane.core.records.diagnosis import (
    LinkProbe,
    NodeDisks,
    NodeResources,
    OperatorTime,
    ParameterGradient,
    ProbeEnd,
    RankProfiled,
    SlowSteps,
    StorageTraffic,
)
from controlplane.core.records.evidence import ReplayPass
from controlplane.core.records.logs import LogFile, LogMark
from controlplane.core.records.node_checks import DeviceSign
from controlplane.wire import control_pb2 as pb
from controlplane.wire.shape import Shape, WireError, shapes_of
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message


class Mapping:
    """Translates between one record class and its message class.

    The first `skip` fields of the record are not in the message, nor are those whose metadata say so, which
    come last. `never_empty` names fields (separated by blanks) that a message must not leave empty."""

    def __init__(self, record: type, message: type[Message], skip: int = 0, never_empty: str = "") -> None:
        self.record, self.message = record, message
        shapes = [shape for shape in shapes_of(record)[skip:] if shape.on_wire]
        self.names = tuple(shape.name for shape in shapes)
        self._values = _getter(self.names)
        full = frozenset(never_empty.split())
        self._reads = [(i, read) for i, s in enumerate(shapes) if (read := _reader(s, s.name in full))]
        self._writes = [(s.name, write) for s in shapes if (write := _writer(s))]

    def read(self, message: Message, *skipped: Any) -> Any:
        """Return the record in a message; `skipped` are the values of its first fields. Raises WireError."""
        values = list(self._values(message))
        for index, read in self._reads:
            values[index] = read(message, values[index])
        return self.record(*skipped, *values)

    def write(self, record: Any, **more: Any) -> Any:
        """Return the message of a record; `more` are fields that the record lacks. Raises WireError."""
        fields = dict(zip(self.names, self._values(record), strict=True))
        try:
            for name, write in self._writes:
                fields[name] = write(fields[name])
            return self.message(**fields, **more)
        except WireError:
            raise
        except (ValueError, TypeError) as error:
            raise WireError(f"{self.message.__name__} cannot hold {self._blamed(fields)}") from error

    def _blamed(self, fields: dict[str, Any]) -> str:
        """Name the field that no message can hold, with its value only if that is a number: text
        may be a secret."""
        for name, value in fields.items():
            try:
                self.message(**{name: value})
            except (ValueError, TypeError):
                return f"{name} {value}" if isinstance(value, int | float) else f"what is in {name}"
        return "what is in it"


class _Failures(Mapping):
    """The mapping of failures. A cause that only a newer version knows is read as EXITED: the failure must
    not be lost."""

    def read(self, message: Any, *skipped: Any) -> Any:
        if message.cause and message.cause not in _CAUSES:
            known = pb.Failure.FromString(message.SerializeToString())
            known.cause = model.Cause.EXITED.value
            known.message = f"{message.message} (its cause {message.cause!r} is unknown here)"
            message = known
        return super().read(message, *skipped)


class _Generations(Mapping):
    """The mapping of generations. One goes to all agents of a job, and its seats grow with their number: the
    message of the last one is kept, or their orders would cost by the square of it."""

    _last: tuple[Any, Any] = (None, None)

    def write(self, record: Any, **more: Any) -> Any:
        if more:
            return super().write(record, **more)
        written, message = self._last
        if record is not written:
            message = super().write(record)
            self._last = record, message
        return message


_CAUSES = frozenset(model.Cause)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda source: (get(source),)


def _reader(shape: Shape, never_empty: bool) -> Callable[[Message, Any], Any] | None:
    """Return how a field of a message becomes a field of a record; None: it is the same."""
    if shape.many:
        return _list_reader(shape)
    if shape.is_record or shape.optional:
        return _present(shape, RECORDS[shape.kind].read if shape.is_record else lambda value: value)
    if shape.is_enum:
        return _enum(shape)
    if shape.kind is float:
        return _number(shape)
    return _filled(shape) if never_empty else None


def _list_reader(shape: Shape) -> Callable[[Message, Any], Any]:
    if shape.is_pair:
        pair = _PAIR_READ[shape.kind]
        return lambda _message, value: tuple(map(pair, value))
    if shape.is_record:
        read = RECORDS[shape.kind].read
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


def _enum(shape: Shape) -> Callable[[Message, Any], Any]:
    members = {member.value: member for member in shape.kind}

    def read(message: Message, value: Any) -> Any:
        member = members.get(value)
        if member is None:
            known = ", ".join(members)
            raise WireError(f"{type(message).__name__}.{shape.name}: {value!r} is not one of {known}")
        return member

    return read


def _number(shape: Shape) -> Callable[[Message, Any], Any]:
    """Refuse infinity and NaN: they would spoil every sum, average and sentence made of them."""

    def check(message: Message, value: float) -> float:
        if not math.isfinite(value):
            raise WireError(f"{type(message).__name__}.{shape.name}: {value} is not a finite number")
        return value

    return check


def _filled(shape: Shape) -> Callable[[Message, Any], Any]:
    def check(message: Message, value: Any) -> Any:
        if not value:
            raise WireError(f"{type(message).__name__}.{shape.name} is missing")
        return value

    return check


def _writer(shape: Shape) -> Callable[[Any], Any] | None:
    """Return how a field of a record becomes a field of a message; None: it is the same."""
    if shape.is_pair:
        return lambda value: [_PAIR_WRITE[shape.kind](*item) for item in value]
    if shape.is_record and shape.many:
        return lambda value: list(map(RECORDS[shape.kind].write, value))
    if shape.is_record:
        return lambda value: None if value is None else RECORDS[shape.kind].write(value)
    return None


_PAIR_READ: dict[Any, Callable[[Any], tuple[Any, Any]]] = {
    (str, str): attrgetter("name", "value"),
    (int, int): attrgetter("rank", "step"),
}
_PAIR_WRITE: dict[Any, Callable[[Any, Any], Message]] = {
    (str, str): lambda name, value: pb.EnvVar(name=name, value=value),
    (int, int): lambda rank, step: pb.RankStep(rank=rank, step=step),
}

RECORDS: dict[type, Mapping] = {}
for _record, _type, _never_empty in (
    (model.JobSpec, pb.JobSpec, "job"),
    (model.Failure, pb.Failure, ""),
    (model.MemberStatus, pb.MemberStatus, "member job"),
    (model.Placement, pb.Placement, "member node"),
    (model.Window, pb.Window, ""),
    (model.Collective, pb.Collective, ""),
    (model.Standing, pb.Standing, "member"),
    (NodeResources, pb.NodeResources, ""),
    (model.Source, pb.Source, "shard"),
    (model.Resume, pb.Resume, ""),
    (model.Generation, pb.Generation, "job number"),
    (model.CheckpointRecord, pb.CheckpointRecord, "job id"),
    (model.CheckpointPart, pb.CheckpointPart, "job checkpoint shard digest"),
    (model.PeerCopy, pb.PeerCopy, "member job"),
    (model.Partner, pb.Partner, "member node address"),
    (model.PeerAddress, pb.PeerAddress, "node address"),
    (model.PeerSight, pb.PeerSight, "node"),
    (OperatorTime, pb.OperatorTime, "name"),
    (ProbeEnd, pb.ProbeEnd, ""),
    (LinkProbe, pb.LinkProbe, "node"),
    (NodeReading, pb.CheckedReading, "name"),
    (StorageTraffic, pb.StorageTraffic, ""),
    (NodeDisks, pb.NodeDisks, ""),
    (DeviceSign, pb.DeviceSign, "device code"),
    (SlowSteps, pb.SlowSteps, ""),
    (ParameterGradient, pb.ParameterGradient, ""),
    (ReplayPass, pb.ReplayPass, "kind"),
    (LogMark, pb.LogMark, ""),
    (LogFile, pb.LogFile, "member"),
):
    _kind = {model.Failure: _Failures, model.Generation: _Generations}.get(_record, Mapping)
    RECORDS[_record] = _kind(_record, _type, 0, _never_empty)

PROFILED = Mapping(RankProfiled, pb.Profiled, 2, "job member request")
"""The answer to a profile: the agent gives it to the leader, and the leader to people."""
