"""Lines of the journal, as plain data."""

from __future__ import annotations

from typing import Any

Line = dict[str, Any]

REASON_MAX = 140
"""Characters of a reason in a table."""


def brief(text: str, most: int = REASON_MAX) -> str:
    """A reason for a table: its first line, its middle left out when that is too long: most begin with
    what is wrong, and end with what is left."""
    first, _, more = text.strip().partition("\n")
    first = first.rstrip()
    if len(first) > most:
        half = (most - 5) // 2
        return f"{first[:half].rstrip()} ... {first[-half:].lstrip()}"
    return f"{first} ..." if more else first


def job_of(body: dict[str, Any]) -> str:
    """The job that a line concerns, wherever its body names it."""
    if isinstance(body.get("job"), str):
        return str(body["job"])
    for name in ("state", "status", "record", "spec", "generation", "verdict", "incident"):
        inner = body.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("job"), str):
            return str(inner["job"])
    return ""
