"""The result of a case, as one JSON line. Standard library only: it is there where nothing is installed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Row:
    """The result of one case. `exact`: every bit and every event is as in the undisturbed run; `differs`: in
    words where not. `skipped`: why it did not run; "" if it did."""

    workload: str
    framework_version: str = ""
    changed_lines: int = 0
    kill_at: str = ""
    exact: bool = False
    callbacks: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    skipped: str = ""

    def as_json(self) -> str:
        """For programs: one line."""
        return json.dumps(dataclasses.asdict(self))
