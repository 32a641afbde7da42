"""What an incident has cost in training done again, in words. Pure.

Of a script without the SDK nobody but the script knows that: it counts its own steps and keeps its own
checkpoints, and all that was seen is that it was started again."""

from __future__ import annotations

RELAUNCH = "relaunch"
SAID = "what is repeated depends on the script's own checkpoints"


def again(strategy: str, lost_steps: int) -> str:
    """`2 steps were done again`, `no step was lost`, or that it is not known."""
    if strategy == RELAUNCH:
        return SAID
    lost = max(0, lost_steps)
    return {0: "no step was lost", 1: "1 step was done again"}.get(lost, f"{lost} steps were done again")


def moment(step: int) -> str:
    """When something happened by the job's steps, to follow a word; nothing where no step was told."""
    return f" at step {step}" if step >= 0 else ""


def phase(strategy: str, name: str) -> str:
    """A phase's name: of a script without the SDK the last one ends with what it writes."""
    shown = "first_output" if strategy == RELAUNCH and name == "first_step" else name
    return shown.replace("_", " ")
