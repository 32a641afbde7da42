"""Write records as JSON, for etcd and the journal, and read them back.

Reading is strict about types and ignores unknown keys, so that a newer version may add fields."""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from controlplane.wire.shape import Shape, WireError, shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 1
"""Increased with each change that an older reader would misread."""

LARGE_BYTES = 32 * 1024
"""A larger record is compressed for etcd: a generation repeats the same fields for each of its ranks."""

_UNPACKED_BYTES_MAX = 64 << 20

R = TypeVar("R")


def plain(value: Any) -> Any:
    """Return a record as JSON values: dicts, lists, strings, numbers, null."""
    kind: Any = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    names = _names(kind)
    return value if names is None else {name: plain(getattr(value, name)) for name in names}


_ATOMS = frozenset((str, int, float, bool, type(None)))


@functools.cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a record; None if it is none."""
    record: bool = dataclasses.is_dataclass(kind)
    return tuple(shape.name for shape in shapes_of(kind)) if record else None


def spell(record: Any) -> bytes:
    """Return a record as one JSON object, with the version of this format in `v`."""
    document = {"v": FORMAT_VERSION, **plain(record)}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode()


def pack(record: Any) -> bytes:
    """Return the bytes that etcd keeps of a record: JSON, or when large a zlib stream of it (RFC 1950)."""
    text = spell(record)
    return zlib.compress(text, 1) if len(text) > LARGE_BYTES else text


def unpack(record: type[R], data: bytes) -> R:
    """Return the record that `pack` made. Raises WireError that names what is wrong."""
    try:
        document = json.loads(_unzipped(data))
    except (ValueError, RecursionError, zlib.error) as error:
        raise WireError(f"a {record.__name__} that is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise WireError(f"a {record.__name__} that is not a JSON object")
    version = document.get("v")
    if version != FORMAT_VERSION:
        raise WireError(f"a {record.__name__} of format {version!r}; this Holdfast reads {FORMAT_VERSION}")
    return restore(record, document)


def _unzipped(data: bytes) -> bytes:
    if not data.startswith(b"x"):  # a zlib stream begins with "x", JSON with "{"
        return data
    stream = zlib.decompressobj()
    text = stream.decompress(data, _UNPACKED_BYTES_MAX)
    if not stream.eof:
        raise ValueError(f"it is cut off, or over {_UNPACKED_BYTES_MAX} bytes")
    return text


def restore(record: type[R], document: Mapping[str, Any]) -> R:
    """Return the record that `plain` made into a document. Raises WireError that names the field."""
    values = {}
    for shape in shapes_of(record):
        where = f"{record.__name__}.{shape.name}"
        if shape.name in document:
            values[shape.name] = _field(shape, document[shape.name], where)
        elif shape.required:
            raise WireError(f"{where} is missing")
    return record(**values)


def _field(shape: Shape, value: Any, where: str) -> Any:
    if value is None and shape.optional:
        return None
    if not shape.many:
        return _one(shape, value, where)
    if not isinstance(value, list):
        raise WireError(f"{where}: {value!r} is not a list")
    return tuple(_one(shape, item, where) for item in value)


def _one(shape: Shape, value: Any, where: str) -> Any:
    if shape.is_pair:
        if not isinstance(value, list) or len(value) != len(shape.kind):
            raise WireError(f"{where}: {value!r} is not a pair")
        return tuple(_scalar(kind, item, where) for kind, item in zip(shape.kind, value, strict=True))
    if shape.is_record:
        if not isinstance(value, dict):
            raise WireError(f"{where}: {value!r} is not an object")
        return restore(shape.kind, value)
    if shape.is_enum:
        try:
            return shape.kind(value)
        except ValueError as error:
            raise WireError(f"{where}: {value!r} is not one of {', '.join(shape.kind)}") from error
    return _scalar(shape.kind, value, where)


def _scalar(kind: type, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise WireError(f"{where}: {value!r} is not of type {kind.__name__}")
    return value
