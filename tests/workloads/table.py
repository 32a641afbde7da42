"""The workloads: what is run, on how many ranks, what a kill may cost, and which must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.workloads.blows import PHASES

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "workloads"
SNAPSHOT_EVERY = 5
SNAPSHOT = SNAPSHOT_EVERY
"""Steps that a kill may cost where the state of the dead rank comes from a snapshot."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One row. `loses`: steps that a kill may cost; `tasks`: trainings one after the other in the script,
    `steps` of each; `refused`: what the refusal must name, where it is to be refused."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    nproc: int = 2
    steps: int = 20
    tasks: int = 1
    loses: int = SNAPSHOT
    phases: tuple[str, ...] = PHASES
    refused: tuple[str, ...] = ()
    gpu: bool = False

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / self.script

    @property
    def ranks(self) -> int:
        """On two nodes."""
        return 2 * self.nproc


WORKLOADS = (
    Workload("accumulation", "accumulation.py", loses=0),
    Workload("no_sync", "accumulation.py", ("--no-sync",), loses=0),
    Workload("accumulation_across", "accumulation_across.py"),
    Workload("amp", "amp.py", loses=0),
    Workload("ema", "ema.py"),
    Workload("ema_every_ten", "ema.py", ("--every", "10")),
    Workload("moco", "moco.py"),
    Workload("dino", "dino.py"),
    Workload("gan", "gan.py"),
)
