"""Say who caused a failure: the user's script, the cluster, or a plan. Pure.

Operators are alerted to the cluster's failures. A failure of the script is for its author, and a planned
change is no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures.hardware_words import HARDWARE_WORDS
from controlplane.core.records.words import Cause

if TYPE_CHECKING:
    from controlplane.core.records.model import Failure

SCRIPT, CLUSTER, PLAN = "script", "cluster", "plan"

WHOSE: dict[Cause, str] = {
    Cause.SIGNALED: CLUSTER,
    Cause.EXITED: SCRIPT,
    Cause.RAISED: SCRIPT,
    Cause.SILENT: CLUSTER,
    Cause.STUCK: CLUSTER,
    Cause.DEVICE: CLUSTER,
    Cause.NODE_LOST: CLUSTER,
    Cause.NODE_RESTARTED: CLUSTER,
    Cause.BROKEN: CLUSTER,
    Cause.LAUNCH_FAILED: CLUSTER,
    Cause.HUNG: CLUSTER,
    Cause.FAULT: SCRIPT,
    Cause.RESIZED: PLAN,
    Cause.CUT: CLUSTER,
}
"""Who is taken to have caused a failure of each cause, unless `whose` finds better evidence."""

NOT_ALLOWED = "StorageNotAllowed"
"""The exception of a launch that an agent refuses because of the storage that a job names: the author's
mistake."""

CORRUPT_STATE = "CorruptState"
"""The exception of a failure in which replicas of the state differ: memory or a device, mostly."""


def of_hardware(cause: Cause, words: str) -> bool:
    """Whether the text of a failure suggests that a device caused it, though the script raised it,
    exited, or has wrong numbers."""
    low = words.lower()
    if cause is Cause.FAULT:
        return CORRUPT_STATE in words
    return cause in (Cause.RAISED, Cause.EXITED) and any(word in low for word in HARDWARE_WORDS)


def whose(failure: Failure) -> str:
    """Who is taken to have caused this failure: script, cluster or plan.

    A process that ended without an exit code was ended by somebody else."""
    if failure.exception == NOT_ALLOWED:
        return SCRIPT
    if of_hardware(failure.cause, f"{failure.exception} {failure.message}"):
        return CLUSTER
    if failure.cause is Cause.EXITED and failure.exit_code is None:
        return CLUSTER
    return WHOSE[failure.cause]
