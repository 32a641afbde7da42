"""Find the runs of this user on this machine, by the cards in the folder of all states.

A card names the processes of a run with their start times, so a card that a killed run has left is not taken
for a run. Runs with a --state-dir of their own are not found."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from controlplane.cli.flags.credentials import coordinator
from controlplane.cli.local.layout import ONCE, state_root
from holdfast.pids import born

if TYPE_CHECKING:
    from pathlib import Path


def local_runs() -> dict[str, str]:
    """The address of the coordinator of each run that lives, by job."""
    root, found = state_root(), dict[str, str]()
    cards = [] if root is None else [*root.glob("*/cluster.json"), *(root / ONCE).glob("*/cluster.json")]
    for card in sorted(cards):
        run = _read(card)
        if _lives(run):
            found[str(run["job"])] = str(run["coordinator"])
    return found


def coordinator_for(text: str) -> str:
    """The addresses to call: those given, else of HOLDFAST_COORDINATOR, else of the run of this user on this
    machine, else the default. Raises ArgumentTypeError that names them when there are several runs."""
    if text or os.environ.get("HOLDFAST_COORDINATOR"):
        return text or coordinator()
    runs = local_runs()
    if len(runs) > 1:
        named = "; ".join(f"{address} for job {job}" for job, address in runs.items())
        raise argparse.ArgumentTypeError(f"{len(runs)} runs are on this machine: give {named}")
    return next(iter(runs.values()), coordinator())


def _read(card: Path) -> dict[str, Any]:
    try:
        run = json.loads(card.read_text())
    except (OSError, ValueError):
        return {}
    return run if isinstance(run, dict) else {}


def _lives(run: dict[str, Any]) -> bool:
    """Whether the coordinator that a card names still runs."""
    processes = run.get("processes")
    pid = processes.get("coordinator") if isinstance(processes, dict) else None
    if not (isinstance(pid, list) and len(pid) == 2 and all(isinstance(each, int) for each in pid)):
        return False
    return bool(pid[1] and born(pid[0]) == pid[1] and run.get("coordinator") and run.get("job"))
