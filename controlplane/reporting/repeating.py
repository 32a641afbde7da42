"""Put into words what an incident cost in repeated training. Pure.

For a plain script this is not known: it counts its own steps and keeps its own checkpoints, and all that can
be seen is that it was started again."""

from __future__ import annotations

RELAUNCH = "relaunch"
SAID = "what is repeated depends on the script's own checkpoints"


def again(strategy: str, lost_steps: int, *, over: bool = True) -> str:
    """Return `2 steps were done again`, `no step was lost`, or that it is not known. `over`: the incident is,
    and so it is known where training went on."""
    if strategy == RELAUNCH:
        return SAID
    if not over:
        return "the steps that are lost are not known yet"
    lost = max(0, lost_steps)
    return {0: "no step was lost", 1: "1 step was done again"}.get(lost, f"{lost} steps were done again")


def moment(step: int) -> str:
    """Return ` at step 20`, to be put after a word; "" when no step is known (negative)."""
    return f" at step {step}" if step >= 0 else ""


def phase(strategy: str, name: str) -> str:
    """Return the name of a phase for people; a plain script's last phase ends with its first output."""
    shown = "first_output" if strategy == RELAUNCH and name == "first_step" else name
    return shown.replace("_", " ")
