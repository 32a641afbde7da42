"""Read lines of the journal, which are plain data."""

from __future__ import annotations

from typing import Any

Line = dict[str, Any]

REASON_MAX = 140
"""Most characters of a reason in a table."""


def brief(text: str, most: int = REASON_MAX) -> str:
    """Shorten a reason for a table: its first line, without the middle when that is too long.

    Most reasons begin with what is wrong and end with what is left."""
    first, _, more = text.strip().partition("\n")
    first = first.rstrip()
    if len(first) > most:
        return without_middle(first, most, " ... ")
    return f"{first} ..." if more else first


def without_middle(text: str, most: int, gap: str = "...") -> str:
    """The text in so many characters at most: where it is longer, with a gap in place of its middle."""
    if len(text) <= most:
        return text
    head = (most - len(gap)) // 2
    tail = most - len(gap) - head
    return f"{text[:head].rstrip()}{gap}{text[-tail:].lstrip()}"


_NOTE = frozenset(("kind", "subject", "reason"))
"""The fields of a note."""


def job_of(body: dict[str, Any]) -> str:
    """Return the job that a line's body names, wherever it does; "" when it names none.

    A note names only its subject, which is a job if it is about one, else a node, say."""
    if isinstance(body.get("job"), str):
        return str(body["job"])
    for name in ("state", "status", "record", "spec", "generation", "verdict", "incident"):
        inner = body.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("job"), str):
            return str(inner["job"])
    return str(body["subject"]) if body.keys() == _NOTE else ""
