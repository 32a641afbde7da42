"""Parse what the demo must kill, and when: `rank=2@step=20`, `stop=rank:0@step=5`. Pure."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from controlplane.cli.errors import nearest

NUMBERED = ("rank", "agent", "node")
WHOLE = ("coordinator", "etcd", "all")


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """One kill. `index`: the number of the rank or node; -1 for what exists only once."""

    target: str
    step: int
    index: int = -1
    freeze: bool = False  # SIGSTOP instead of SIGKILL

    def __str__(self) -> str:
        name = self.target if self.index < 0 else f"{self.target} {self.index}"
        return f"{'SIGSTOP' if self.freeze else 'SIGKILL'} to {name} in step {self.step}"


def read_kill(text: str) -> PlannedKill:
    """Parse a kill, as an argument type. Raises ArgumentTypeError that names what is possible."""
    whom, at, when = text.partition("@")
    step = re.fullmatch(r"step=(\d+)", when)
    if not at or step is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no step: give one, as in rank=2@step=20")
    name, equals, index = whom.partition("=")
    if name in WHOLE and not equals:
        return PlannedKill(name, int(step[1]))
    frozen = re.fullmatch(r"rank:(\d+)", index)
    if name == "stop" and frozen is not None:
        return PlannedKill("rank", int(step[1]), int(frozen[1]), freeze=True)
    if name in NUMBERED and index.isdigit():
        return PlannedKill(name, int(step[1]), int(index))
    known = [f"{word}=N" for word in NUMBERED] + list(WHOLE) + ["stop=rank:N"]
    hint = nearest(name, [*NUMBERED, *WHOLE, "stop"])
    raise argparse.ArgumentTypeError(f"unknown target {whom!r}{hint} Known: {', '.join(known)}")


def impossible(kill: PlannedKill, steps: int, nodes: int, world_size: int) -> str:
    """Why this kill is impossible in such a run; "" when it is possible."""
    if not 1 <= kill.step < steps:
        return f"{kill}: the run has steps 0 to {steps - 1}, kills are possible from 1; give 1 to {steps - 1}"
    most = {"rank": world_size, "agent": nodes, "node": nodes}.get(kill.target, 0)
    if kill.index >= most and kill.index >= 0:
        return f"{kill}: there are only {most}, counted from 0"
    return ""
