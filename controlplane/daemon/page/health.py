"""Give viewers the health report of a job: the same report as `holdfast doctor JOB`, bounded for a browser.

All viewers share an answer. The more it cost to make, the longer it is kept, so that the report of a job of
ten thousand ranks takes a small share of the coordinator's time, however many people look at it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from controlplane.daemon.page.picture import encoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.daemon.leadership.leader_term import LeaderTerm

ROWS_MOST = 64
"""Ranks that an answer has in full: those that differ most from their peers. Of all others it has the own
work."""
KEPT_RATIO = 50.0
"""An answer that took a second to make is kept for so many seconds."""
JOBS_KEPT_MAX = 64


class HealthAnswers:
    """The newest answers of one process, by job. `clock`: in s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[tuple[int, str], tuple[float, bytes]] = {}  # by term and job: until when, and what

    def answer(self, leader_term: LeaderTerm, job: str) -> bytes:
        """Return the report of a job as JSON. Raises KeyError when there is no such job."""
        begun_s, key = self._clock(), (leader_term.term, job)
        until_s, text = self._of.get(key, (begun_s, b""))
        if begun_s < until_s:
            return text
        text = encoded(leader_term.health_report(job, ROWS_MOST))
        ended_s = self._clock()
        if len(self._of) >= JOBS_KEPT_MAX:
            self.forget()
        self._of[key] = ended_s + KEPT_RATIO * (ended_s - begun_s), text
        return text

    def forget(self) -> None:
        """Forget all answers, since something has been changed by hand."""
        self._of.clear()
