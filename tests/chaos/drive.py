"""Drive one job on a cluster, and answer what faults must know: the leader, a rank's place, the progress."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from controlplane.reporting.story import ENDINGS
from tests.chaos.books import Journals, Steps
from tests.chaos.cluster import COORDINATORS, NODES, Cluster, until

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = "tests/chaos/train.py"
AHEAD = 40
"""How many steps after the order to end the job ends."""
STEADY_STEPS = 10
"""A job counts as settled after this many steps: then its pace is known, and hangs are found soon."""
START_S = 100.0
"""How long launchers may take to import torch, on a busy machine."""
PROGRESS_S = 100.0
"""How long after the last fault is gone all ranks may take to train again; then the job counts as wedged."""


class Wedged(AssertionError):
    """The job made no progress although nothing stood in its way."""


class Job:
    """A submitted job."""

    def __init__(
        self, cluster: Cluster, name: str, pace_s: float, least: int, most: int, flags: Sequence[str]
    ) -> None:
        self.cluster, self.name, self.least, self.most = cluster, name, least, most
        self.folder = cluster.folder / name
        (self.folder / "orders").mkdir(parents=True)
        self.storage = cluster.folder / "storage"
        self.steps = Steps(self.folder)
        self.journals = Journals(cluster.journal(each) for each in COORDINATORS)
        self._flags = (
            "--nnodes",
            f"{least}:{most}",
            "--nproc-per-node",
            "1",
            "--storage",
            str(self.storage),
            *flags,
        )
        self._script = (os.path.abspath(SCRIPT), str(self.folder), str(pace_s))

    def submit(self) -> Job:
        """Submit it."""
        self.cluster.submit(self.name, self._script, *self._flags)
        return self

    # ------------------------------------------------------------ where things are

    def look(self) -> None:
        """Read what is new."""
        self.steps.look()
        self.journals.news()

    def place(self, rank: int) -> tuple[str, int]:
        """The node and process of a rank, as its node knows it."""

        def found() -> tuple[str, int] | None:
            try:
                node, pid, _ = (self.folder / f"{rank}.place").read_text().split()
            except FileNotFoundError:
                return None
            return (node, int(pid)) if int(pid) in self.cluster[node].processes() else None

        return until(found, lambda: f"rank {rank} of {self.name} runs somewhere", PROGRESS_S)  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """How many ranks train now."""
        return max(1, self.steps.look().reached()[1])

    def nodes(self) -> list[str]:
        """The nodes of its ranks, by rank."""
        return [self.place(rank)[0] for rank in range(self.size)]

    def idle(self) -> list[str]:
        """The nodes that have none of its ranks."""
        busy = self.nodes()
        return [name for name in NODES if name not in busy]

    def leader(self) -> str:
        """The coordinator that leads, once one does."""
        return str(until(self._leader, lambda: "a coordinator leads", PROGRESS_S))

    def _leader(self) -> str:
        self.journals.news()
        journals = {
            line["term"]: line["journal"] for line in self.journals.lines if line["type"] == "Elected"
        }
        over = {line["term"] for line in self.journals.lines if line["type"] == "LeadershipEnded"}
        newest = max(journals, default=0)
        name = COORDINATORS[journals[newest]] if journals else ""
        return name if newest not in over and name and self.cluster.running(name) else ""

    def joined(self, node: str) -> int:
        """How often an agent of this node was admitted."""
        self.journals.news()
        return sum(body["node"] == node for body in self.journals.bodies("Admit"))

    # ------------------------------------------------------------ actions

    def order(self, rank: int, what: str) -> None:
        """Have a rank do something in its next step (see DEEDS of the script)."""
        (self.folder / "orders" / f"{rank}.{what}").touch()

    def obeyed(self, rank: int, what: str) -> bool:
        """Whether it has begun to do so."""
        return (self.folder / "orders" / f"{rank}.{what}.done").exists()

    def withdraw(self) -> None:
        """Withdraw the orders that no rank has carried out."""
        for path in (self.folder / "orders").iterdir():
            path.unlink(missing_ok=True)

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a rank a signal."""
        node, pid = self.place(rank)
        self.cluster[node].signal(pid, number)

    # ------------------------------------------------------------ progress

    def settled(self, after: str, beyond: int | None = None) -> float:
        """Wait until enough ranks of the newest generation train on, with no incident open.

        They must pass the step that any rank had completed until now (or `beyond`). Returns how long it took,
        in s. Raises Wedged."""
        self.look()
        goal, began = self.steps.highest if beyond is None else beyond, time.monotonic()
        while time.monotonic() - began < PROGRESS_S + (beyond is not None) * START_S:
            self.look()
            step, ranks = self.steps.reached()
            if step >= goal + STEADY_STEPS and self.least <= ranks <= self.most and not self.open_incident():
                return time.monotonic() - began
            self._failed(after)
            time.sleep(0.05)
        raise Wedged(
            f"after {after}: {self.steps.reached()} within {PROGRESS_S:.0f} s, step {goal} had been completed"
        )

    def open_incident(self) -> bool:
        """Whether the newest incident in the journals is open."""
        for line in reversed(self.journals.lines):
            body = line["body"]
            if line["type"] == "Note" and body["kind"] in ENDINGS and body["subject"] == self.name:
                return False
            if line["type"] == "IncidentChanged" and body["incident"]["job"] == self.name:
                return bool(body["incident"]["outcome"] == "open")
        return False

    def _failed(self, after: str) -> None:
        for body in reversed(self.journals.bodies("JobChanged")):
            if body["state"]["job"] == self.name:
                if body["state"]["phase"] == "failed":
                    raise Wedged(f"after {after}: the job failed: {body['state']['reason']}")
                return

    def finish(self, last: int = 0) -> int:
        """Let it end. Returns the number of its steps. Raises Wedged."""
        total = last or self.steps.look().highest + AHEAD
        (self.folder / "last.part").write_text(str(total))
        (self.folder / "last.part").rename(self.folder / "last")
        began = time.monotonic()
        while time.monotonic() - began < PROGRESS_S + total * 0.2:
            self.look()
            phases = [
                b["state"]["phase"]
                for b in self.journals.bodies("JobChanged")
                if b["state"]["job"] == self.name
            ]
            if phases and phases[-1] == "finished":
                return total
            self._failed("the order to end")
            time.sleep(0.05)
        raise Wedged(f"it does not end: {self.steps.reached()} of {total} steps")
