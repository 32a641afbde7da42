"""Read torch's report of failed processes: which rank the launcher saw fail first, and with which exit code.

The report is written by `ChildFailedError` (torch/distributed/elastic/multiprocessing/errors/__init__.py), at
the end of the launcher's log or of the rank's that shares its terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = "Root Cause (first observed failure):"
_RANK = re.compile(r"\s{0,8}rank {0,8}: (\d{1,7})\b")
_CODE = re.compile(r"\s{0,8}exitcode {0,8}: (-?\d{1,5})\b")
_INSIDE = re.compile(r"\s{0,8}(?:\[\d{1,7}\]:|(?:time|host|rank|exitcode|error_file|traceback|msg) {0,8}:)")
_OTHERS = ("Failures:", "<NO_OTHER_FAILURES>", "------", "======")
CODES = {
    -4: "aborted", -6: "aborted", -7: "bus_error", -9: "killed", -11: "segfault", -15: "terminated",
    134: "aborted", 135: "bus_error", 137: "killed", 139: "segfault", 143: "terminated",
}  # fmt: skip
"""What an exit code says of a process: the negative number of its signal, or 128 + that number."""


@dataclass(frozen=True, slots=True)
class LauncherReport:
    """The rank that the launcher saw fail first."""

    rank: int
    exit_code: int
    number: int | None

    @property
    def cause(self) -> str:
        """The code of the cause that the exit code stands for; `unknown` for one that says nothing."""
        return CODES.get(self.exit_code, "unknown")


class LauncherReports:
    """The reports in one stream of lines."""

    def __init__(self) -> None:
        self.found: list[LauncherReport] = []
        self._inside, self._first, self._rank = False, False, -1

    def take(self, number: int | None, text: str) -> bool:
        """Whether this line belongs to a report."""
        if _HEAD in text:
            self._inside, self._first, self._rank = True, True, -1
            return True
        if text.startswith("Failures:"):
            self._inside, self._first = True, False
            return True
        if not self._inside:
            return False
        if _INSIDE.match(text) is None and not text.strip().startswith(_OTHERS):
            self._inside = False
            return False
        if self._first:
            self._look(number, text)
        return True

    def _look(self, number: int | None, text: str) -> None:
        if (found := _RANK.match(text)) is not None:
            self._rank = int(found[1])
        elif (code := _CODE.match(text)) is not None and self._rank >= 0:
            self.found.append(LauncherReport(self._rank, int(code[1]), number))
            self._rank = -1
