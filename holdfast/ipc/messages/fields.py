"""Read messages field by field, as the annotations of their records say.

The other end of a socket may be the user's process, and may send anything. A field that the receiver decides
by is checked, and BadMessage names the one that is impossible; others are taken as words, or replaced by a
default."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ipc.frames import Message

_T = TypeVar("_T", int, float, str, bool)


class BadMessage(ValueError):
    """A frame of ours whose content is impossible. It is dropped, counted and logged."""


def integer(message: Message, key: str) -> int:
    """An integer field of a message. Raises BadMessage."""
    value = message.get(key)
    if type(value) is not int or not -1 <= value < 1 << 62:
        raise BadMessage(f"{message.get('op')}: {key} must be an integer, not {value!r:.80}")
    return value


def number(message: Message, key: str) -> float:
    """A finite number of a message, or 0.0 when it is null. Raises BadMessage."""
    value = message.get(key)
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not abs(value) < 1e15:
        raise BadMessage(f"{message.get('op')}: {key} must be a number, not {value!r:.80}")
    return float(value)


def text(message: Message, key: str, default: str | None = None) -> str:
    """A string field of a message. Raises BadMessage."""
    value = message.get(key, default)
    if not isinstance(value, str):
        raise BadMessage(f"{message.get('op')}: {key} must be a string, not {value!r:.80}")
    return value


def word(message: Message, key: str, default: str | None = None) -> str:
    """A field in words for people, whatever it is; null without it, unless there is a default."""
    return str(message.get(key, default))


def unchecked(message: Message, key: str, default: _T) -> _T:
    """A field that nothing is decided by: `default` when it is missing or of another type."""
    value = message.get(key)
    return value if type(value) is type(default) else default


def flag(message: Message, key: str) -> bool:
    """Whether a field is true: anything but `true` is not."""
    return message.get(key) is True


def if_there(message: Message, key: str, default: int | None) -> int | None:
    """An integer field, or `default` when there is none. Raises BadMessage."""
    return integer(message, key) if key in message else default


def or_null(message: Message, key: str) -> int | None:
    """An integer field, or None when it is null or missing. Raises BadMessage."""
    return integer(message, key) if message.get(key) is not None else None


def as_is(message: Message, key: str) -> Any:
    """A field that is read elsewhere, or by nobody."""
    return message.get(key)


Integer = Annotated[int, integer]
Number = Annotated[float, number]
Text = Annotated[str, text]
TextOrEmpty = Annotated[str, partial(text, default="")]
Word = Annotated[str, word]
WordOrEmpty = Annotated[str, partial(word, default="")]
Flag = Annotated[bool, flag]
AnyInteger = Annotated[int, partial(unchecked, default=0)]
AnyText = Annotated[str, partial(unchecked, default="")]


@dataclass(frozen=True, slots=True)
class Record:
    """A message. Each subclass names its `op`, and for each field how it is read."""

    op: ClassVar[str]

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {"op": self.op} | {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}

    @classmethod
    def decode(cls, message: Message) -> Self:
        """The record of a frame's JSON object. Raises BadMessage."""
        kind: Any = cls  # mypy takes no frozen class for hashable
        return cls(**{name: read(message, name) for name, read in _readers(kind)})


@functools.cache
def _readers(kind: type[Record]) -> tuple[tuple[str, Callable[[Message, str], Any]], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((part.name, hints[part.name].__metadata__[0]) for part in dataclasses.fields(kind))


def decode(message: Message, kinds: dict[str, Any]) -> Any:
    """The record of a message, of these kinds by their `op`. Raises BadMessage."""
    kind = kinds.get(str(message.get("op")))
    if kind is None:
        raise BadMessage(f"unknown op {message.get('op')!r:.80}")
    return kind.decode(message)
