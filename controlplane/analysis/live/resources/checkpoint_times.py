"""Remember how long checkpoints take, and what was written for each: how much, and for how long."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.trends.policy import LEVEL_BLOCKS
from controlplane.analysis.trends.watching import MetricWatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.live.readings import JobWindow


class WrittenPart(NamedTuple):
    """What a typical node wrote for one checkpoint."""

    bytes: float
    write_s: float


class CheckpointTimes:
    """How long checkpoints take, and the time from one to the next (s; 0: not known)."""

    def __init__(self) -> None:
        self.watch = MetricWatch(policy.CHECKPOINTS_LEARNT)
        self.every_s = 0.0
        self._seen = 0
        self._writing: dict[str, WrittenPart] = {}  # by node, since the newest checkpoint
        self._learnt: list[WrittenPart] = []
        self._newest: deque[WrittenPart] = deque(maxlen=LEVEL_BLOCKS)

    def take(self, window: JobWindow) -> None:
        """Take in what was written, and the newest checkpoint, if it is a new one."""
        self.every_s = window.checkpoint_every_s
        for each in window.storage:
            if 0.0 < each.bytes_written < math.inf and 0.0 < each.write_s < math.inf:
                before = self._writing.get(each.node, WrittenPart(0.0, 0.0))
                self._writing[each.node] = WrittenPart(
                    before.bytes + each.bytes_written, before.write_s + each.write_s
                )
        if window.checkpoints and window.checkpoints != self._seen:
            self._seen = window.checkpoints
            if self._writing:
                (self._learnt if self.watch.learning else self._newest).append(
                    _typical(list(self._writing.values()))
                )
            self._writing = {}
            self.watch.observe(window.ended_s, window.checkpoint_took_s)

    @property
    def written(self) -> tuple[WrittenPart, WrittenPart] | None:
        """What a typical node usually wrote for a checkpoint, and what it writes at present; None: not
        known."""
        if not self._learnt or not self._newest:
            return None
        return _typical(self._learnt), _typical(self._newest)


def _typical(parts: Sequence[WrittenPart]) -> WrittenPart:
    nbytes, write_s = np.median(np.array(parts), axis=0).tolist()
    return WrittenPart(nbytes, write_s)
