"""Choose what is killed, and when: at random moments, most of them while a checkpoint is being made."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.processes import is_running
from tests.e2e.cli_running import until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.e2e.cli_running import Run
    from tests.soak.books import Journal

MOMENT_TIMEOUT_S = 4.0
LATER_MAX_S = 0.012
LOOK_S = 0.0005


def _of(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: bool(line["type"] == kind)


def _commit(line: dict[str, Any]) -> bool:
    return bool(line["type"] == "StoreCheckpoint")


def _forget(line: dict[str, Any]) -> bool:
    return bool(line["type"] == "ForgetCheckpoints")


MOMENTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "snapshot": _of("SnapshotReady"),
    "upload": _of("Persist"),
    "part": _of("PartPersisted"),
    "seal": _of("Seal"),
    "sealed": _of("Persisted"),
    "commit": _commit,
    "publish": _of("Publish"),
    "published": _of("Published"),
    "mirror": _of("Mirror"),
    "forget": _forget,
    "collect": _of("Collect"),
    "asked": _of("CheckpointAsked"),
}
"""The journal's line for which each kill waits, by the name of the moment."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One kill, or two at once: of what, and when."""

    targets: tuple[str, ...]
    moment: str  # "": any
    later_s: float

    def __str__(self) -> str:
        when = f"{1000 * self.later_s:.1f} ms after {self.moment}" if self.moment else "at any time"
        return f"{' and '.join(self.targets)}, {when}"


def draw(chance: random.Random, moments: list[str], ranks: int) -> Strike:
    """Draw the next kill."""
    targets = [_target(chance, ranks)]
    if chance.random() < 0.12:
        targets.append(_target(chance, ranks))
    moment = chance.choice(moments) if chance.random() < 0.75 else ""
    return Strike(tuple(dict.fromkeys(targets)), moment, chance.uniform(0, LATER_MAX_S if moment else 0.2))


def _target(chance: random.Random, ranks: int) -> str:
    kind = chance.random()
    if kind < 0.55:
        return f"rank {chance.randrange(ranks)}"
    return f"n{chance.randrange(2)}" if kind < 0.8 else "coordinator"


def strike(blow: Strike, run: Run, journal: Journal) -> None:
    """Wait for the moment, and kill. Does not wait for ever: when the moment does not come in time, it kills
    all the same."""
    pids = [find(run, target) for target in blow.targets]
    journal.news()
    deadline = time.monotonic() + (MOMENT_TIMEOUT_S if blow.moment else 0)
    while time.monotonic() < deadline and not any(map(MOMENTS[blow.moment], journal.news())):
        time.sleep(LOOK_S)
    time.sleep(blow.later_s)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended with the process that was killed before it


def find(run: Run, target: str) -> int:
    """The process id of a target now."""

    def looked() -> int:
        if target.startswith("rank "):
            path = run.folder / f"{target[5:]}.pid"
            pid = int(path.read_text()) if path.exists() else 0
        else:
            pid = run.pid_of(target)
        return pid if pid and is_running(pid) else 0

    return int(until(looked, lambda: f"{target} runs; {run.output}"))
