"""Read messages field by field, as the annotations of their records say.

The other end of a socket may be the user's process and may send anything. A field that decisions depend on is
checked, and BadMessage names the impossible one. Other fields are taken as text, or replaced by a default."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.ipc.frames import Message

_T = TypeVar("_T", int, float, str, bool)


class BadMessage(ValueError):
    """A frame with an impossible content. It is dropped, counted and logged."""


def integer(message: Message, key: str) -> int:
    """An integer field, -1 or more. Raises BadMessage."""
    value = message.get(key)
    if type(value) is not int or not -1 <= value < 1 << 62:
        raise BadMessage(f"{message.get('op')}: {key} must be an integer, not {value!r:.80}")
    return value


def number(message: Message, key: str) -> float:
    """A finite number; 0.0 if it is null or missing. Raises BadMessage."""
    value = message.get(key)
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not abs(value) < 1e15:
        raise BadMessage(f"{message.get('op')}: {key} must be a number, not {value!r:.80}")
    return float(value)


def text(message: Message, key: str, default: str | None = None) -> str:
    """A string field. Raises BadMessage."""
    value = message.get(key, default)
    if not isinstance(value, str):
        raise BadMessage(f"{message.get('op')}: {key} must be a string, not {value!r:.80}")
    return value


def as_text(message: Message, key: str, default: str | None = None) -> str:
    """A field as text for people, whatever its type; `default` if it is missing, "None" without one."""
    return str(message.get(key, default))


def unchecked(message: Message, key: str, default: _T) -> _T:
    """A field that no decision depends on: `default` if it is missing or of another type."""
    value = message.get(key)
    return value if type(value) is type(default) else default


def flag(message: Message, key: str) -> bool:
    """Whether a field is true: only `true` is."""
    return message.get(key) is True


def if_there(message: Message, key: str, default: int | None) -> int | None:
    """An integer field; `default` if it is missing. Raises BadMessage."""
    return integer(message, key) if key in message else default


def or_null(message: Message, key: str) -> int | None:
    """An integer field; None if it is null or missing. Raises BadMessage."""
    return integer(message, key) if message.get(key) is not None else None


def as_is(message: Message, key: str) -> Any:
    """A field that is read elsewhere, or not at all."""
    return message.get(key)


Integer = Annotated[int, integer]
Number = Annotated[float, number]
Text = Annotated[str, text]
TextOrEmpty = Annotated[str, partial(text, default="")]
AsText = Annotated[str, as_text]
AsTextOrEmpty = Annotated[str, partial(as_text, default="")]
Flag = Annotated[bool, flag]
AnyInteger = Annotated[int, partial(unchecked, default=0)]
AnyText = Annotated[str, partial(unchecked, default="")]


@dataclass(frozen=True, slots=True)
class Record:
    """A message. Each subclass names its `op`, and says for each field how it is read."""

    op: ClassVar[str]

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {"op": self.op} | {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}

    @classmethod
    def decode(cls, message: Message) -> Self:
        """The record in a frame's JSON object. Raises BadMessage."""
        kind: Any = cls  # mypy does not take a frozen class as hashable
        return cls(**{name: read(message, name) for name, read in _readers(kind)})


@functools.cache
def _readers(kind: type[Record]) -> tuple[tuple[str, Callable[[Message, str], Any]], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((part.name, hints[part.name].__metadata__[0]) for part in dataclasses.fields(kind))


def by_op(kinds: Iterable[Any]) -> dict[str, Any]:
    """These classes of messages by their `op`. How their fields are read is looked up now: else the first
    failure waits for that."""
    found = {kind.op: kind for kind in kinds}
    for kind in found.values():
        _readers(kind)
    return found


def decode(message: Message, kinds: dict[str, Any]) -> Any:
    """The record of a message, whose class is found by its `op` in `kinds`. Raises BadMessage."""
    kind = kinds.get(str(message.get("op")))
    if kind is None:
        raise BadMessage(f"unknown op {message.get('op')!r:.80}")
    return kind.decode(message)
