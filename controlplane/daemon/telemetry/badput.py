"""Name what a job's time is lost to as Google's library for goodput does, where its names fit.

The names are those of `BadputType` in `goodput_utils.py` of AI-Hypercomputer/ml-goodput-measurement, so that
numbers of two clusters can be laid side by side. DATA_LOADING_ASYNC is not among them: nobody waits for data
that is loaded in the background, and the library leaves it out of its sums too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

TRAINING_PREP, PROGRAM_STARTUP = "TRAINING_PREP", "PROGRAM_STARTUP"
DATA_LOADING_SYNC, CUSTOM_BADPUT_EVENTS, OTHER = "DATA_LOADING_SYNC", "CUSTOM_BADPUT_EVENTS", "OTHER"
SAVE, RESTORE = "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"
WASTED, RECOVERY = "WASTED_PROGRESS_FROM_DISRUPTION", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"

NAMES: dict[str, str] = {
    **{cause.value: RECOVERY for cause in Cause},
    "forming": TRAINING_PREP,  # processes start, use their devices for the first time, and find each other
    "startup": PROGRAM_STARTUP,  # a generation begins: until its first step is complete
    "compile": PROGRAM_STARTUP,  # declared by the script; the library counts compilation there too
    "data": DATA_LOADING_SYNC,
    "evaluate": CUSTOM_BADPUT_EVENTS,  # the library's own example of an event that a script declares
    "checkpoint": SAVE,  # what the script saves itself, as it declares
    "snapshot": SAVE,
    "restore": RESTORE,
    "redone": WASTED,
    "slow_rank": OTHER,  # the library shows deviating steps beside its sums, not in them
    "waiting": OTHER,  # for nodes: the library measures no queue
}
"""By cause of ours. An absent cause is an error: a test holds this table to the metrics' list of causes.
TPU_INITIALIZATION has no cause: the first use of a device cannot be told from the rest of `forming`."""

OF_FAILURES = (RECOVERY, RESTORE, WASTED)
"""What failures cost, between steps or by steps that are done again."""


def totals(lost_s: Mapping[str, float], unknown_s: float) -> dict[str, float]:
    """Sum up lost seconds by Google's names. Unknown time is OTHER there ("other/unknown").

    A cause that an older or newer leader kept and this table does not have is OTHER too."""
    found: dict[str, float] = {OTHER: unknown_s} if unknown_s else {}
    for cause, spent_s in lost_s.items():
        name = NAMES.get(cause, OTHER)
        found[name] = found.get(name, 0.0) + spent_s
    return {name: round(spent_s, 2) for name, spent_s in sorted(found.items())}
