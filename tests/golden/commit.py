"""Import the modules of the commit that writes samples, and make records with a value in every field.

It finds the modules under the names of earlier commits as well as under today's."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import itertools
from enum import Enum
from typing import Any

MODULES = {
    "codec": ("controlplane.wire.codec",),
    "relayed": ("controlplane.wire.relayed",),
    "control": ("controlplane.wire.control_pb2",),
    "peer": ("controlplane.wire.peer_pb2",),
    "shape": ("controlplane.wire.shape",),
    "packing": ("controlplane.wire.records",),
    "model": ("controlplane.core.records.model", "controlplane.core.model"),
    "words": ("controlplane.core.records.words", "controlplane.core.words"),
    "events": ("controlplane.core.records.events", "controlplane.core.events"),
    "effects": ("controlplane.core.records.effects", "controlplane.core.effects"),
    "view": ("controlplane.core.view",),
    "cluster": ("controlplane.core.cluster",),
    "timing": ("controlplane.core.records.timing", "controlplane.core.timing"),
    "rows": ("controlplane.daemon.leadership.rows", "controlplane.daemon.records"),
    "keyspace": ("controlplane.daemon.etcd.keyspace",),
    "identity": ("controlplane.daemon.leadership.identity", "controlplane.daemon.identity"),
    "accounts": ("controlplane.daemon.leadership.accounts", "controlplane.daemon.accounts"),
    "times": ("controlplane.daemon.telemetry.job_time", "controlplane.daemon.metrics_jobs"),
    "journal": ("controlplane.daemon.journal.journal", "controlplane.daemon.journal"),
    "saving": ("holdfast.checkpoint.save",),
    "language": ("tests.transcripts.language",),
    "states": ("tests.checkpoint.states",),
    "store": ("holdfast.checkpoint.storage.store", "holdfast.checkpoint.store"),
    "arena": ("holdfast.ipc.arena", "holdfast.checkpoint.arena"),
}
"""The names under which commits have had each module that is used here. The first that exists is taken."""

SHARES = frozenset({"confidence"})
"""Fields whose values are refused outside of 0 to 1."""

Sample = dict[str, Any]


def module(name: str) -> Any:
    """The module of the commit at hand. Raises LookupError."""
    for path in MODULES[name]:
        try:
            found = importlib.import_module(path)
            if hasattr(found, "__path__"):
                continue  # a package of today's where the commit has a module
            return found
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
    raise LookupError(f"this commit has none of {', '.join(MODULES[name])}")


def taken_apart(value: Any) -> Any:
    """A record as JSON, made from its fields alone, without the commit's own codec."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {each.name: taken_apart(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple | list | frozenset):
        return [taken_apart(each) for each in (sorted(value) if isinstance(value, frozenset) else value)]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value


class Samples:
    """Makes records with a value of its own in every field. Deterministic."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def of(self, kind: Any, *, full: bool = True, wire: bool = True) -> Any:
        """A record of this kind. Without `full`, optional fields are left out; with `wire`, fields that do
        not travel are."""
        shapes = [each for each in module("shape").shapes_of(kind) if each.on_wire or not wire]
        return kind(**{each.name: self._value(each, full, wire) for each in shapes})

    def _value(self, shape: Any, full: bool, wire: bool) -> Any:
        if shape.optional and not full:
            return None
        if shape.name in SHARES:
            return 1 / (1 + self._one(shape, full, wire))
        if shape.many:
            return (self._one(shape, full, wire), self._one(shape, full, wire)) if full else ()
        return self._one(shape, full, wire)

    def _one(self, shape: Any, full: bool, wire: bool) -> Any:
        number = next(self._numbers)
        if shape.is_pair:
            return tuple(f"v{number}" if kind is str else number for kind in shape.kind)
        if shape.is_record:
            return self.of(shape.kind, full=full, wire=wire)
        if shape.is_enum:
            return list(shape.kind)[number % len(shape.kind)]
        return {str: f"v{number} ü\n", int: number, float: number + 0.5, bool: True}[shape.kind]

    def message(self, kind: Any) -> Any:
        """A protobuf message with a value in every field; of a oneof in the last."""
        found = kind()
        for field in kind.DESCRIPTOR.fields:
            many = field.label == field.LABEL_REPEATED
            values = [self._scalar(field) for _ in range(2 if many else 1)]
            if field.message_type is not None and not many:
                getattr(found, field.name).CopyFrom(values[0])
            elif many:
                getattr(found, field.name).extend(values)
            else:
                setattr(found, field.name, values[0])
        return found

    def _scalar(self, field: Any) -> Any:
        if field.message_type is not None:
            return self.message(field.message_type._concrete_class)
        number = next(self._numbers)
        made = {
            field.CPPTYPE_STRING: f"v{number} ü\n",
            field.CPPTYPE_BOOL: True,
            field.CPPTYPE_DOUBLE: number + 0.5,
        }
        if field.type == field.TYPE_BYTES:
            return f"b{number}".encode()
        return made.get(field.cpp_type, number)


def spelled(message: Any) -> dict[str, Any]:
    """The fields that are set, as JSON."""
    found = {}
    for field, value in message.ListFields():
        many = field.label == field.LABEL_REPEATED
        values = [spelled(each) if field.message_type else taken_apart(each) for each in
                  (value if many else [value])]  # fmt: skip
        found[field.name] = values if many else values[0]
    return found
