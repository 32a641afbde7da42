"""Random protobuf messages of any kind, by their descriptors, and bytes that were damaged afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

WORDS = (
    *(
        "",
        "j",
        "j.0",
        "j.1",
        "j.2",
        "n1",
        "n2",
        "c1",
        "running",
        "launched",
        "warm",
        "dead",
        "formed",
        "rank",
    ),
    *(
        "spare",
        "full",
        "incremental",
        "all",
        "10-1",
        "20-2",
        "127.0.0.1:7070",
        "exited",
        "signaled",
        "memory",
    ),
    *("..", "../../etc/passwd", "a\x00b", "x" * 300, "\u202e\U0001f600", "%s%n", "' OR 1=1 --", "-", "."),
)
_INTEGERS = (0, 1, 2, 3, 10, 20, -1, 127, 255, 1 << 16, (1 << 31) - 1)
_LARGE = (*_INTEGERS, 1 << 31, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, 1.0, -1.0, 0.25, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
_DEPTH_MAX = 4
F = FieldDescriptor
_SMALL = (F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32)
_VALUES: dict[int, Callable[[Random], Any]] = {
    F.TYPE_STRING: lambda rng: rng.choice(WORDS),
    F.TYPE_BYTES: lambda rng: rng.randbytes(rng.choice((0, 1, 16, 32, 200))),
    F.TYPE_BOOL: lambda rng: rng.random() < 0.5,
    F.TYPE_DOUBLE: lambda rng: rng.choice(_FLOATS),
    F.TYPE_ENUM: lambda rng: rng.choice((0, 1, 2)),
    **{kind: (lambda rng: rng.choice(_LARGE)) for kind in (F.TYPE_INT64, F.TYPE_SINT64)},
    F.TYPE_UINT32: lambda rng: abs(rng.choice(_INTEGERS)),
    F.TYPE_UINT64: lambda rng: abs(rng.choice(_INTEGERS)),
    **{kind: (lambda rng: rng.choice(_INTEGERS)) for kind in _SMALL},
}


def fill(message: Any, rng: Random, depth: int = 0) -> Any:
    """Give most fields a value that is plausible, or at the edge."""
    for oneof in message.DESCRIPTOR.oneofs:
        if not oneof.name.startswith("_"):
            _set(message, rng.choice(oneof.fields), rng, depth)
    for field in message.DESCRIPTOR.fields:
        grouped = field.containing_oneof is not None and not field.containing_oneof.name.startswith("_")
        if not grouped and rng.random() < 0.7:
            _set(message, field, rng, depth)
    return message


def _set(message: Any, field: FieldDescriptor, rng: Random, depth: int) -> None:
    inner = field.type == F.TYPE_MESSAGE
    if field.label == F.LABEL_REPEATED:
        rows = getattr(message, field.name)
        for _ in range(0 if depth >= _DEPTH_MAX else rng.choice((0, 1, 1, 2, 3))):
            if inner:
                fill(rows.add(), rng, depth + 1)
            else:
                rows.append(_VALUES[field.type](rng))
    elif not inner:
        setattr(message, field.name, _VALUES[field.type](rng))
    elif depth < _DEPTH_MAX:
        getattr(message, field.name).SetInParent()
        fill(getattr(message, field.name), rng, depth + 1)


def damage(data: bytes, rng: Random) -> bytes:
    """The same bytes, with some of them changed, cut, doubled or put in; half of the time as they are."""
    if rng.random() < 0.5:
        return data
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(spoilt) + 1)
        _DAMAGES[rng.randrange(len(_DAMAGES))](spoilt, at, rng)
    return bytes(spoilt)


def _flip(data: bytearray, at: int, rng: Random) -> None:
    if at < len(data):
        data[at] ^= 1 << rng.randrange(8)


def _insert(data: bytearray, at: int, rng: Random) -> None:
    data[at:at] = rng.randbytes(rng.choice((1, 2, 8)))


def _double(data: bytearray, at: int, rng: Random) -> None:
    data[at:at] = data[at : at + rng.choice((1, 4, 64))]


def _cut(data: bytearray, at: int, rng: Random) -> None:
    del data[at : at + rng.choice((1, 4, 1 << 20))]


def _long(data: bytearray, at: int, _rng: Random) -> None:
    data[at:at] = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"


_DAMAGES = (_flip, _flip, _insert, _double, _cut, _long)
