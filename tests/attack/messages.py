"""Make messages from the contract itself: one of each kind, with a possible value in every field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.wire import codec, control_pb2, peer_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLOATS = {"double", "float"}
_KINDS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    13: "uint32",
}
_KINDS |= {15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64"}
"""protobuf's codes of the types that are numbers."""

WORDS = {
    "phase": "running", "role": "rank", "cause": "signaled", "cluster": "c1", "launcher": "l1", "kind": "nan",
    "address": "127.0.0.1", "shard": "all", "base": "1-1", "checkpoint": "1-1", "id": "1-1", "codec": "auto",
    "commit_when": "both", "on_nan": "ignore", "request": "r1", "manifest_digest": "d", "argv": "train.py",
    "cwd": "/",
}  # fmt: skip
"""The values of fields with these names; other text fields have their own name as value."""


@dataclass(frozen=True)
class Spot:
    """One number in a message: the names on the way to it, its own last."""

    path: tuple[str, ...]
    record: str
    kind: str
    many: bool

    @property
    def field(self) -> str:
        return self.path[-1]


def services() -> dict[str, Any]:
    """Every method of every service of the wire, as Service.Method."""
    return {
        f"{service.name}.{method.name}": method
        for file in (control_pb2, peer_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def bodies(message: Any) -> list[str]:
    """The fields of which a message has exactly one: each makes a message of its own. [""]: it has all
    fields."""
    oneofs = [each for each in message.oneofs if not each.name.startswith("_")]
    return [field.name for each in oneofs for field in each.fields] or [""]


def filled(kind: Any, truth: Mapping[str, Any]) -> Any:
    """A message of this descriptor. `truth`: the values of fields with these names."""
    message = kind._concrete_class()
    for field in kind.fields:
        if field.containing_oneof is not None and not field.containing_oneof.name.startswith("_"):
            continue
        value = _value(field, truth)
        if field.label == field.LABEL_REPEATED:
            getattr(message, field.name).extend([value])
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(value)
        else:
            setattr(message, field.name, value)
    return message


def _value(field: Any, truth: Mapping[str, Any]) -> Any:
    if field.message_type is not None:
        return filled(field.message_type, truth)
    if field.name in truth:
        return truth[field.name]
    if field.type in _KINDS:
        return 1.0 if _KINDS[field.type] in FLOATS else 1
    if field.type == field.TYPE_BOOL:
        return False
    return b"" if field.type == field.TYPE_BYTES else WORDS.get(field.name, field.name)


def spots(kind: Any, path: tuple[str, ...] = ()) -> Iterator[Spot]:
    """Every number in a message of this descriptor, at any depth."""
    for field in kind.fields:
        here = (*path, field.name)
        if field.message_type is not None:
            yield from spots(field.message_type, here)
        elif field.type in _KINDS:
            yield Spot(here, kind.name, _KINDS[field.type], field.label == field.LABEL_REPEATED)


def put(message: Any, spot: Spot, value: float) -> bool:
    """Set a number to a value. False when no message can hold it."""
    for name in spot.path[:-1]:
        message = getattr(message, name)
        message = message[0] if hasattr(message, "add") else message
    try:
        if spot.many:
            getattr(message, spot.field)[:] = [value]
        else:
            setattr(message, spot.field, value)
    except (ValueError, TypeError):
        return False
    return True


def hello(node: str, cluster: str) -> dict[str, Any]:
    """The values for a hello of this node."""
    return {"protocol_version": codec.PROTOCOL_VERSION, "cluster": cluster, "node": node}
