"""Exit codes of the command line, and the errors that lead to them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OK = 0
FAILED = 1
"""The job failed, or what the command asked for does not exist."""
USAGE = 2
"""A wrong flag, value or setting."""
UNREACHABLE = 3
"""No coordinator answers."""
TIMED_OUT = 124
"""What was waited for has not come in time, as with timeout(1)."""
INTERRUPTED = 130
"""Ctrl-C."""


class CliError(Exception):
    """An error for the user: one message that names the cause and the solution, and an exit code."""

    code = FAILED


class UsageError(CliError):
    """A wrong flag, value or setting."""

    code = USAGE


class UnreachableError(CliError):
    """No coordinator answers."""

    code = UNREACHABLE


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known name, or nothing when none is near. The only one that begins
    so is the nearest."""
    names = list(known)
    begun = [each for each in names if name and each.startswith(name)]
    found = begun if len(begun) == 1 else difflib.get_close_matches(name, names, n=1, cutoff=0.55)
    return f"; did you mean {found[0]}?" if found else ""
