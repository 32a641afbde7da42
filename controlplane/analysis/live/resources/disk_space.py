"""Remember how much room each file system of a job's nodes had, from the beginning until now."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import SpacedSamples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.live.readings import DiskReading
    from controlplane.analysis.robust import Floats


@dataclass(slots=True)
class DiskHistory:
    """The readings of one file system."""

    newest: DiskReading
    read_s: float = float("-inf")
    samples: SpacedSamples = field(default_factory=lambda: SpacedSamples(policy.DISK_SAMPLES, 1))

    @property
    def at(self) -> Floats:
        """When each sample was taken, s."""
        return self.samples.times[:, 0]

    @property
    def free(self) -> Floats:
        """Free bytes in each sample."""
        found: Floats = self.samples.values[:, 0]
        return found


class DiskMemory:
    """All file systems of a job's nodes. What is not reported any more is forgotten."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], DiskHistory] = {}

    def add(self, now_s: float, disks: Iterable[DiskReading]) -> None:
        """Take in a window. What cannot be (not finite, negative, more free than there is) is left out."""
        for each in disks:
            if not (isfinite(each.total_bytes) and 0.0 <= each.free_bytes <= each.total_bytes):
                continue
            key = each.node, each.path
            known = self._known.get(key)
            if known is None or known.newest.total_bytes != each.total_bytes:  # another one is mounted there
                known = self._known[key] = DiskHistory(each)
            known.newest = each
            if now_s - known.read_s >= policy.DISK_EVERY_S:
                known.read_s = now_s
                known.samples.add(now_s, 0.0, np.array([each.free_bytes]))
        gone = [key for key, each in self._known.items() if now_s - each.read_s > policy.DISK_GONE_S]
        for key in gone:
            del self._known[key]

    def all(self) -> list[DiskHistory]:
        """Every file system, by node and path."""
        return [self._known[key] for key in sorted(self._known)]
