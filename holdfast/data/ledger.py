"""Append what a rank consumed and committed to a file, one JSON line each. SIGKILL loses no written line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.environment import Environment


class Ledger:
    """The append-only sample ledger of one member."""

    def __init__(self, folder: Path, member: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(folder / f"{member}.jsonl", flags, 0o600)

    @classmethod
    def of(cls, environment: Environment) -> Ledger | None:
        """The ledger of this rank; None if none is wanted."""
        if not environment.ledger:
            return None
        return cls(Path(environment.ledger), environment.member or f"alone.{environment.rank}")

    def attempt(self, step: int, generation: int, rank: int, **of: Any) -> None:
        """Record that a share was handed out.

        `of`: world_size, total (samples in the step's global batch) and indices."""
        self._write(kind="attempt", step=step, generation=generation, rank=rank, **of)

    def committed(self, step: int, generation: int, rank: int) -> None:
        """Record that a step is complete."""
        self._write(kind="committed", step=step, generation=generation, rank=rank, t_ns=time.monotonic_ns())

    def skipped(self, first: int, end: int, generation: int, rank: int) -> None:
        """Record that batches from `first` up to, not including, `end` are left out by policy."""
        self._write(kind="skipped", first=first, end=end, generation=generation, rank=rank)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _write(self, **line: Any) -> None:
        os.write(self._descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")
