"""Make messages as a newer version would send them: with fields and words that this version does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from controlplane.wire import codec
from controlplane.wire.mapping import RECORDS
from controlplane.wire.shape import shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = bytes([0xFA, 0xFF, 0x07, 0x04]) + b"new!" + bytes([0xF0, 0xFF, 0x07, 0x2A])
"""Field 16383 as text, and field 16382 as a number. None of our messages has such fields."""
WORD = "dancing"


def types_in(message: Message) -> dict[str, None]:
    """The names of the message types that this message holds, itself first."""
    found = {message.DESCRIPTOR.name: None}
    for each in _inner(message):
        found |= types_in(each)
    return found


def swollen(message: Any, name: str = "") -> bytes:
    """The message's bytes, with unknown fields in every message of this type in it, or in all of any type."""
    data = b""
    for field, value in message.ListFields():
        several = [value] if isinstance(value, Message) else value
        if field.type != field.TYPE_MESSAGE:
            alone = type(message)()
            alone.MergeFrom(message)
            for other, _ in message.ListFields():
                if other.name != field.name:
                    alone.ClearField(other.name)
            data += alone.SerializeToString()
            continue
        for each in several:
            inner = swollen(each, name)
            data += _varint(field.number << 3 | 2) + _varint(len(inner)) + inner
    return data + (UNKNOWN if name in ("", message.DESCRIPTOR.name) else b"")


def worded(message: Any) -> Iterator[tuple[str, Any]]:
    """Copies of this message, one for each field that holds a word of a fixed set; there the copy has an
    unknown word. With the name of the field."""
    for path in _words(message):
        copy = type(message).FromString(message.SerializeToString())
        target = copy
        for name, index in path[:-1]:
            target = getattr(target, name) if index is None else getattr(target, name)[index]
        setattr(target, path[-1][0], WORD)
        yield ".".join(name for name, _ in path), copy


def _words(message: Any) -> Iterator[list[tuple[str, int | None]]]:
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            if field.name in _ENUMS.get(message.DESCRIPTOR.name, ()):
                yield [(field.name, None)]
            continue
        for index, each in [(None, value)] if isinstance(value, Message) else enumerate(value):
            for path in _words(each):
                yield [(field.name, index), *path]


def _enums() -> dict[str, set[str]]:
    mappings = [*RECORDS.values(), *codec._EVENTS.values(), *codec._ORDERS.values(), codec._HELLO]
    found: dict[str, set[str]] = {}
    for mapping in mappings:
        names = {shape.name for shape in shapes_of(mapping.record) if shape.is_enum}
        found.setdefault(mapping.message.DESCRIPTOR.name, set()).update(names)
    return found


_ENUMS = _enums()


def _inner(message: Any) -> Iterator[Any]:
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            yield from [value] if isinstance(value, Message) else value


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])
