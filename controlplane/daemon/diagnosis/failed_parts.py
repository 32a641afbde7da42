"""Remember which parts of the diagnosis of each job raised an error when they last ran."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from controlplane.analysis.findings_ledger.policy import FIRST_FAILURE
from controlplane.analysis.guarding import FailedPart, failed_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.watch import LiveDiagnosis

log = logging.getLogger(__name__)


class FailedParts:
    """The failed parts of all jobs. `show(job, count)` sets a metric."""

    def __init__(self, show: Callable[[str, int], None]) -> None:
        self._show = show
        self._looked: dict[str, list[FailedPart]] = {}  # by job, when it was last looked at
        self._uncaused: dict[str, FailedPart] = {}  # jobs whose newest incident could not be judged

    def of(self, job: str) -> list[FailedPart]:
        """Every part of a job's diagnosis that raised."""
        return [*self._looked.get(job, ()), *filter(None, [self._uncaused.get(job)])]

    def looked(self, job: str, newest: LiveDiagnosis | None, others: list[FailedPart]) -> None:
        """Take what raised: within the newest window, and beside it. Log what did not fail before."""
        known = {each.name for each in self._looked.get(job, ())}
        failed = [*(() if newest is None else newest.failed_detectors), *others]
        for each in failed:
            if each.name not in known:
                log.error("job %s: %s fails, what it looks for is not known: %s", job, each.name, each.error)
        self._looked[job] = failed
        self._show(job, len(self.of(job)))

    def judged_incident(self, job: str, error: Exception | None) -> None:
        """Take whether the first cause of a job's incident could be judged. `error`: why not."""
        if error is None:
            self._uncaused.pop(job, None)
        else:
            self._uncaused[job] = failed_part(FIRST_FAILURE, error)

    def forget(self, job: str) -> None:
        """Drop everything about a job that is over."""
        self._looked.pop(job, None)
        self._uncaused.pop(job, None)
