"""Lines of the journal, as plain data."""

from __future__ import annotations

from typing import Any

Line = dict[str, Any]


def job_of(body: dict[str, Any]) -> str:
    """The job that a line concerns, wherever its body names it."""
    if isinstance(body.get("job"), str):
        return str(body["job"])
    for name in ("state", "status", "record", "spec", "generation", "verdict", "incident"):
        inner = body.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("job"), str):
            return str(inner["job"])
    return ""
