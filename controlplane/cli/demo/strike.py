"""Kill something in a given step, at a random moment of it, and time the recovery.

The times are those that the ranks themselves recorded on their progress pages, so it does not matter when the
pages are read."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.cli.errors import CliError
from controlplane.cli.local.processes import descendants, freeze_and_kill, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.cli.demo.kills import PlannedKill
    from controlplane.cli.demo.training import DemoRank, DemoTraining

LOOK_S = 0.001
RECOVERY_TIMEOUT_S = 120.0


@dataclass(slots=True)
class KillResult:
    """One kill and what came of it. Times in s from the kill; None: not observed, or not applicable."""

    kill: PlannedKill
    step: int  # in which training was when it happened
    generation: int
    before: dict[int, DemoRank] = field(default_factory=dict)
    hit: tuple[int, ...] = ()  # the ranks that were killed
    at_ns: int = 0
    survivors_resumed_s: float | None = None
    full_world_s: float | None = None
    survivor_pids_unchanged: bool | None = None
    lost_steps: int | None = None  # only where everything was killed; otherwise the journal has it


async def strike(
    training: DemoTraining, kill: PlannedKill, seed: int, say: Callable[[str, str], None]
) -> KillResult:
    """Wait for the step, and kill at a random moment of it."""
    await _reached(training, kill)
    before = dict(training.seats)
    await asyncio.sleep(random.Random(seed).uniform(0, _step_s(training, before)))
    blow = KillResult(kill, max(training.progress().values(), default=0), 0, before)
    blow.generation = max(_generation(training, seat) for seat in before.values())
    _BLOWS[kill.target](training, blow)
    say(f"{kill}: done", "bold red")
    return blow


async def _reached(training: DemoTraining, kill: PlannedKill) -> None:
    """Wait until some rank has reached the step, and all ranks of the world are known."""
    while True:
        steps = training.progress()
        seats = training.seats
        if steps and len(steps) == len(seats) and max(steps.values()) >= kill.step:
            return
        await asyncio.sleep(LOOK_S)


def _step_s(training: DemoTraining, seats: dict[int, DemoRank]) -> float:
    """About how long a step takes, in s, 1 at most: the present one so far, or the last one where none
    runs."""
    spans = []
    for seat in seats.values():
        page = training.page(seat)
        if page is not None and page.step_started_ns > 0:
            complete = page.completed_ns > page.step_started_ns
            end_ns = page.completed_ns if complete else time.monotonic_ns()
            spans.append((end_ns - page.step_started_ns) / 1e9)
    return min(max(spans, default=0.1), 1.0)


def _generation(training: DemoTraining, seat: DemoRank) -> int:
    page = training.page(seat)
    return 0 if page is None else page.generation


def _kill_rank(training: DemoTraining, blow: KillResult) -> None:
    seat = blow.before[blow.kill.index]
    blow.hit = (seat.rank,)
    number = signal.SIGSTOP if blow.kill.freeze else signal.SIGKILL
    blow.at_ns = time.monotonic_ns()
    if not send(seat.pid, number):
        raise CliError(f"{blow.kill}: process {seat.pid} had already ended")


def _kill_daemon(training: DemoTraining, blow: KillResult) -> None:
    name = f"n{blow.kill.index}" if blow.kill.target == "agent" else blow.kill.target
    pid = training.card()["processes"][name][0]
    blow.at_ns = time.monotonic_ns()
    send(pid, signal.SIGKILL)


def _kill_node(training: DemoTraining, blow: KillResult) -> None:
    """Kill the agent, launcher and ranks of a node, stopped first, so that none sees another die."""
    node = f"n{blow.kill.index}"
    blow.hit = tuple(sorted(seat.rank for seat in blow.before.values() if seat.node == node))
    agent = training.card()["processes"][node][0]
    pids = Path(training.card()["run_dir"]) / node / "launcher.pid"
    launcher = int(pids.read_text().split()[0])
    family = [agent, launcher, *descendants(agent), *descendants(launcher)]
    for pid in family:
        send(pid, signal.SIGSTOP)
    blow.at_ns = time.monotonic_ns()
    for pid in family:
        send(pid, signal.SIGKILL)


def _kill_all(training: DemoTraining, blow: KillResult) -> None:
    assert training.process is not None
    blow.hit = tuple(sorted(blow.before))
    training.reviving = True
    blow.at_ns = time.monotonic_ns()
    freeze_and_kill(training.process.pid)
    training.process.wait()


_BLOWS: dict[str, Callable[[DemoTraining, KillResult], None]] = {
    "rank": _kill_rank,
    "agent": _kill_daemon,
    "coordinator": _kill_daemon,
    "etcd": _kill_daemon,
    "node": _kill_node,
    "all": _kill_all,
}


async def watch_recovery(training: DemoTraining, blow: KillResult) -> None:
    """If ranks were killed, watch the progress pages until every rank has completed a step in a newer
    generation."""
    if blow.kill.target not in ("rank", "node"):
        return
    deadline = time.monotonic() + RECOVERY_TIMEOUT_S
    survivors = [seat for rank, seat in blow.before.items() if rank not in blow.hit]
    while time.monotonic() < deadline and training.ended() is None:
        if blow.survivors_resumed_s is None:
            blow.survivors_resumed_s = _since(training, blow, survivors)
        now = training.seats
        if blow.survivors_resumed_s is not None and len(now) == len(blow.before):
            blow.full_world_s = _since(training, blow, list(now.values()))
        if blow.full_world_s is not None:
            same = (training.seats[seat.rank].pid == seat.pid for seat in survivors)
            blow.survivor_pids_unchanged = all(same)
            return
        await asyncio.sleep(LOOK_S)


async def wait_for_return(training: DemoTraining, blow: KillResult) -> None:
    """After everything was killed: run the same command, and time its first steps."""
    training.close()
    training.seats = {}
    training.start()
    training.reviving = False
    deadline = time.monotonic() + RECOVERY_TIMEOUT_S
    while time.monotonic() < deadline and training.ended() is None:
        pages = [training.page(seat) for seat in training.seats.values()]
        alive = [page for page in pages if page is not None and page.resumed_ns > blow.at_ns]
        if len(alive) == len(blow.before):
            blow.full_world_s = (max(page.resumed_ns for page in alive) - blow.at_ns) / 1e9
            blow.lost_steps = max(0, blow.step - (min(page.completed for page in alive) - 1))
            return
        await asyncio.sleep(LOOK_S)


def _since(training: DemoTraining, blow: KillResult, seats: list[DemoRank]) -> float | None:
    """The time from the kill to the last of these ranks' first steps in a newer generation; None: not yet."""
    times = []
    for seat in seats:
        page = training.page(seat)
        if page is None or page.resumed_generation <= blow.generation:
            return None
        times.append(page.resumed_ns)
    return (max(times) - blow.at_ns) / 1e9 if times else None
