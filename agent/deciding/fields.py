"""Fields of what a rank says, read with care: a rank is the user's process, its frames may be anything."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


class BadMessage(ValueError):
    """A frame of ours whose content cannot be. It is dropped, counted and logged."""


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
