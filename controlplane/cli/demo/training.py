"""Run one training of the demo, as a process of `holdfast run`, and observe it from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.access.client_credentials import plain
from controlplane.cli.client import AdminClient
from controlplane.cli.errors import CliError
from controlplane.cli.local.layout import LocalPaths, layout_at
from controlplane.cli.local.processes import send
from controlplane.parent_death import with_parent_death_signal
from holdfast.ipc.progress_page import ProgressPage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from controlplane.cli.local.network_spaces import NodeNetworks
    from controlplane.wire import control_pb2 as pb

STATUS_PAUSE_S = 0.2
END_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class DemoRank:
    """One rank as the coordinator last reported it."""

    rank: int
    node: str
    member: str
    pid: int
    phase: str
    generation: int


@dataclass(slots=True)
class DemoTraining:
    """A run with a folder of its own. `start` may be called again after everything was killed.

    `environment`: variables besides those of this process. `networks`: of its nodes; None: all nodes are in
    that of this process."""

    folder: Path
    name: str
    argv: Sequence[str]
    layout: LocalPaths = field(init=False)
    process: subprocess.Popen[bytes] | None = None
    reviving: bool = False  # everything was killed on purpose and is about to be started again
    seats: dict[int, DemoRank] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    networks: NodeNetworks | None = None
    _pages: dict[str, ProgressPage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = layout_at(self.name, self.folder / "state")
        self.folder.mkdir(parents=True)

    @property
    def log(self) -> Path:
        """The output of the run and its ranks."""
        return self.folder / "output.log"

    @property
    def ledger(self) -> Path:
        """The folder where its ranks record which samples they consumed."""
        return self.folder / "ledger"

    @property
    def digests(self) -> Path:
        """The folder where its ranks write the digests of their final weights."""
        return self.folder / "digests"

    @property
    def journal(self) -> Path:
        """The journal of its coordinator."""
        return self.layout.state / "journal.jsonl"

    def start(self) -> None:
        """Start `holdfast run`, with the same command each time. It ends when this process does.

        Call it in the main thread: the kernel watches the thread."""
        self.ledger.mkdir(exist_ok=True)
        command = [sys.executable, "-P", "-m", "controlplane", "run", *self.argv]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                with_parent_death_signal(command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def stop(self) -> None:
        """End it as Ctrl-C would, and kill it when that takes too long."""
        if self.process is None or self.process.poll() is not None:
            return
        send(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(END_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Unmap the progress pages."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    async def watch(self) -> None:
        """Keep `seats` up to date until cancelled. The coordinator may come and go."""
        while True:
            address = self.layout.read_card().get("coordinator")
            if address:
                async with AdminClient(address, timeout_s=2.0, access=plain()) as admin:
                    await self._look(admin)
            await asyncio.sleep(STATUS_PAUSE_S)

    async def _look(self, admin: AdminClient) -> None:
        try:
            while True:
                status = await admin.status()
                self.seats = seats_of(status)
                await asyncio.sleep(STATUS_PAUSE_S)
        except CliError:
            return  # the coordinator is away; the card will name the address of the next one

    def page(self, seat: DemoRank) -> ProgressPage | None:
        """The progress page of a rank; None while there is none."""
        if seat.member not in self._pages:
            try:
                self._pages[seat.member] = ProgressPage.open(
                    self.layout.shm(seat.node) / f"{seat.member}.board"
                )
            except (OSError, ValueError):
                return None  # the agent has not created it yet, or has removed it
        return self._pages[seat.member]

    def progress(self) -> dict[int, int]:
        """Completed steps, by rank."""
        found = {}
        for seat in self.seats.values():
            page = self.page(seat)
            if page is not None:
                found[seat.rank] = page.completed
        return found

    def card(self) -> dict[str, Any]:
        """The description of its cluster: addresses and processes."""
        return self.layout.read_card()


def seats_of(status: pb.StatusReply) -> dict[int, DemoRank]:
    """The member in each place, by rank; the one of the newest generation where two claim a rank."""
    rows = sorted(status.ranks, key=lambda row: row.generation)
    return {
        row.rank: DemoRank(row.rank, row.node, row.member, row.pid, row.phase, row.generation)
        for row in rows
        if row.rank >= 0 and row.phase != "exited"
    }
