"""Whose doing a failure is: the user's script's, the cluster's, or nobody's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
"""Operators are woken for the cluster's failures; the script's are for its author, and a plan is none."""

NOT_ALLOWED = "StorageNotAllowed"
"""The exception of a launch that an agent refuses for the storage that a job names: its author's doing."""

HARDWARE_WORDS = (
    "cuda error",
    "ecc error",
    "uncorrectable",
    "xid",
    "nccl error",
    "acceleratorerror",
    "nvlink",
)
"""An exception that speaks of these is the device's more than the script's."""


def of_hardware(cause: Cause, words: str) -> bool:
    """Whether a device seems to be behind what a script says of its end."""
    low = words.lower()
    return cause in (Cause.RAISED, Cause.EXITED) and any(word in low for word in HARDWARE_WORDS)


def whose(failure: Failure) -> str:
    """Whose doing this failure is taken to be. A process that ended without a code of its own was ended."""
    if failure.exception == NOT_ALLOWED:
        return SCRIPT
    if of_hardware(failure.cause, f"{failure.exception} {failure.message}"):
        return CLUSTER
    if failure.cause is Cause.EXITED and failure.exit_code is None:
        return CLUSTER
    return WHOSE[failure.cause]
