"""Decide when and how a launcher ends, and with which exit code.

Every launcher ends if no agent is attached for too long. One that is a container's main process (`holdfast
exec`) may also end with its job, and passes SIGTERM on to the agent, so that the node is left in order.
Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

ORPHANED = 3
JOB_FAILED = 41
"""Not 1: a Kubernetes Job must distinguish "the job failed for good" from an interpreter that crashed."""
TERMINATED = 143
"""SIGTERM or SIGHUP has ended it: 128 and the number of SIGTERM."""


@dataclass(slots=True)
class EndPolicy:
    """When a launcher ends by itself. `code` is the exit code so far.

    `over`: its job is over. `stopping`: SIGTERM has come."""

    job: str = ""  # ends with this job; "": serves any job
    grace_s: float = 0.0  # seconds that the agent has to leave after SIGTERM; 0: the ranks end at once
    code: int = 0
    over: bool = False
    stopping: bool = False

    def note_over(self, job: str, ok: bool) -> bool:
        """Note that a job is over here. True if the launcher is to end with it."""
        if not self.job or job != self.job:
            return False
        self.over, self.code = True, 0 if ok else JOB_FAILED
        return True

    def ask_agent(self, attached: bool) -> bool:
        """SIGTERM has come. True if the agent is to leave first; a second SIGTERM ends it at once."""
        first, self.stopping = not self.stopping, True
        if not self.over:
            self.code = TERMINATED
        return first and attached and self.grace_s > 0
