"""Remember when checkpoints were committed and which saves failed, as the journal says it. Pure.

A record of a checkpoint has no time. What only another coordinator's journal holds, or none any more, has no
known age."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.daemon.page.picture import Row

FAILURES_SHOWN = 20
"""Newest failures shown of each job."""
COMMITS_MAX = 4096
"""Checkpoints of all jobs together whose times are remembered, the newest."""
JOBS_MAX = 256
REASON_MAX = 2000
_FAILURES = {
    "failed": "was not saved",
    "skipped": "was not begun",
    "bad": "is bad",
    "unmirrored": "is not on the second storage",
}
"""Outcomes in the journal that are failures, and what they mean for a checkpoint."""


class Saves:
    """What the journal says of the checkpoints of all jobs."""

    def __init__(self) -> None:
        self._committed: dict[tuple[str, str], float] = {}  # when (Unix time, s), by job and checkpoint
        self._failures: defaultdict[str, deque[Row]] = defaultdict(lambda: deque(maxlen=FAILURES_SHOWN))

    def add(self, line: dict[str, Any]) -> None:
        """Take one line of the journal; lines about anything else say nothing."""
        if line["type"] != "CheckpointChanged":
            return
        body = line["body"]
        job, outcome = str(body["job"]), body["outcome"]
        if outcome == "committed":
            self._committed[job, str(body["checkpoint"])] = float(line["wall_s"])
            if len(self._committed) > COMMITS_MAX:
                del self._committed[next(iter(self._committed))]
        elif outcome in _FAILURES:
            if job not in self._failures and len(self._failures) >= JOBS_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[job].append(_row(line, job))

    def committed_s(self, job: str, checkpoint: str) -> float | None:
        """Return when a checkpoint was committed (Unix time, s); None: not known."""
        return self._committed.get((job, checkpoint))

    def failures(self, job: str) -> Iterator[tuple[str, Row]]:
        """Return the newest failures of a job, with the keys of their rows."""
        for row in self._failures.get(job, ()):
            yield f"{job}/{row['line']}", row


def _row(line: dict[str, Any], job: str) -> Row:
    body = line["body"]
    return {
        "job": job,
        "line": line["sequence"],
        "id": body["checkpoint"],
        "outcome": body["outcome"],
        "happened": _FAILURES[body["outcome"]],
        "reason": str(body["reason"])[:REASON_MAX],
        "at_s": line["wall_s"],
    }
