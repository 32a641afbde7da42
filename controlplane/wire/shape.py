"""Describe the fields of the core's records, read once from their annotations.

The codecs of protobuf (mapping.py) and JSON (records.py) are both built from these shapes, so a new field
cannot be forgotten in either."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from controlplane.core.records import model

if TYPE_CHECKING:
    from collections.abc import Iterable


class WireError(ValueError):
    """Invalid content: an unknown value, a missing field, a wrong type. The message names it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One field of a record. `kind` is the type inside `optional` and `many`."""

    name: str
    kind: Any  # str, int, float, bool, a StrEnum, a record, or a pair of scalars as a tuple of two types
    optional: bool
    many: bool
    required: bool  # has no default
    on_wire: bool = True  # in messages; recordings have every field

    @property
    def is_record(self) -> bool:
        """Whether the field holds records."""
        return dataclasses.is_dataclass(self.kind)

    @property
    def is_enum(self) -> bool:
        """Whether the field holds one word of a fixed set."""
        return isinstance(self.kind, type) and issubclass(self.kind, StrEnum)

    @property
    def is_pair(self) -> bool:
        """Whether the field holds pairs of scalars."""
        return isinstance(self.kind, tuple)


def shapes_of(record: type) -> tuple[Shape, ...]:
    """Return the fields of a record class, in order. Raises TypeError on an annotation without a shape."""
    return _shapes(record)


def learn(records: Iterable[type]) -> None:
    """Read the annotations of these records, and of all within them, now: else the first failure waits for
    that."""
    known: set[type] = set()
    pending = list(records)
    while pending:
        record = pending.pop()
        if record not in known:
            known.add(record)
            pending += [shape.kind for shape in shapes_of(record) if shape.is_record]


@cache
def _shapes(record: Any) -> tuple[Shape, ...]:
    hints = typing.get_type_hints(record, localns=vars(model))
    return tuple(_shape(field, hints[field.name]) for field in dataclasses.fields(record))


def _shape(field: dataclasses.Field[Any], hint: Any) -> Shape:
    optional = many = False
    if isinstance(hint, types.UnionType) and types.NoneType in typing.get_args(hint):
        (hint,) = (option for option in typing.get_args(hint) if option is not types.NoneType)
        optional = True
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[-1] is Ellipsis:
        hint, many = typing.get_args(hint)[0], True
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    shape = Shape(field.name, hint, optional, many, required, field.metadata.get("wire", True))
    if not (hint in (str, int, float, bool) or shape.is_record or shape.is_enum or shape.is_pair):
        raise TypeError(f"field {field.name}: no shape for {hint!r}; teach controlplane/wire/shape.py")
    return shape
