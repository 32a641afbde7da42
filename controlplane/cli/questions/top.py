"""`holdfast top`: show speed and problems of every job, again every second."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, UnreachableError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser, seconds, whole
from controlplane.cli.questions.outputs import WIDE, add_output, for_programs, part
from controlplane.cli.questions.queries import add_coordinator, as_data, health
from controlplane.cli.questions.screens import LastPicture
from controlplane.cli.questions.tables import NOTHING, eta, loss, plain, step_time, why
from controlplane.reporting.lines import brief
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    import argparse

    from controlplane.wire import control_pb2 as pb

BEHIND_SHOWN = 5


class StepRates:
    """Computes each job's steps per second from one look to the next."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def look(self, now: float, status: pb.StatusReply) -> dict[str, float]:
        """Steps per second since the previous look; without jobs that are seen for the first time."""
        rates = {}
        for row in status.jobs:
            before = self._seen.get(row.job)
            if before is not None and now > before[0]:
                rates[row.job] = max(0, row.step - before[1]) / (now - before[0])
            self._seen[row.job] = (now, row.step)
        return rates


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "-n",
        "--count",
        type=whole(1, "it would show nothing"),
        default=0,
        metavar="N",
        help="end after N refreshes (default: never)",
    )
    parser.add_argument(
        "--interval-s", type=seconds(0.1), default=1.0, metavar="SECONDS", help="time between two refreshes"
    )
    add_output(parser, "wide: all ranks that are behind; json: one line each time")
    add_coordinator(parser)


def top(values: argparse.Namespace) -> int:
    """Show the cluster again and again, until Ctrl-C; with a count, or for programs, until nobody answers."""
    return asyncio.run(_top(values))


async def _top(values: argparse.Namespace) -> int:
    rates, shown, wide = StepRates(), 0, values.output == WIDE
    last = LastPicture(whole=wide)
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        while True:
            try:
                status = await admin.status()
            except UnreachableError as error:
                if values.count or for_programs(values.output):
                    raise
                last.stays(error)
                await asyncio.sleep(values.interval_s)
                continue
            looked = rates.look(time.monotonic(), status)
            if for_programs(values.output):
                print(part(values.output, as_data(status) | {"steps_per_s": looked}), flush=True)
            else:
                last.show(screen(status, looked, wide))
            shown += 1
            if shown == values.count:
                return OK
            await asyncio.sleep(values.interval_s)


def screen(status: pb.StatusReply, rates: dict[str, float], wide: bool = False) -> str:
    """One picture of the cluster. `wide`: with all ranks that make no progress, not the worst few."""
    most = len(status.ranks) if wide else BEHIND_SHOWN
    parts = [_head(status), _jobs(status, rates), _behind(status, most), _trouble(status)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(status: pb.StatusReply) -> str:
    states = Counter(row.state for row in status.nodes)
    busy = {row.node for row in status.ranks if row.role == "rank"}
    idle = sum(row.state == "up" and row.node not in busy for row in status.nodes)
    nodes = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    return "\n".join(
        [
            f"cluster {status.cluster}, led by {status.leader or 'nobody'}, term {status.term}",
            f"nodes: {nodes}; {idle} without a rank",
            health(status),
        ]
    )


def _jobs(status: pb.StatusReply, rates: dict[str, float]) -> str:
    spares = Counter(row.job for row in status.ranks if row.role == "spare")
    rows = [
        [
            row.job,
            row.phase,
            row.health or NOTHING,
            str(row.step) if row.step >= 0 else NOTHING,
            eta(row),
            step_time(row),
            loss(row),
            f"{rates[row.job]:.2f}" if row.job in rates else NOTHING,
            str(row.world_size),
            str(spares[row.job]),
            str(row.incidents),
            row.last_checkpoint or NOTHING,
            why(row),
        ]
        for row in status.jobs
    ]
    headings = ["JOB", "PHASE", "HEALTH", "STEP", "ETA", "STEP TIME", "LOSS", "STEPS/S"]
    headings += ["RANKS", "SPARES", "INCIDENTS", "CHECKPOINT", "REASON"]
    return plain(headings, rows) if rows else "no jobs"


def _behind(status: pb.StatusReply, most: int) -> str:
    """The ranks that make no progress, as their agents judge them.

    Steps are no measure: each rank was looked at at another moment, so ranks in step may seem apart."""
    behind = sorted((row for row in status.ranks if row.stalled_s > 0), key=lambda row: -row.stalled_s)
    rows = [
        [row.job, str(row.rank), row.node, row.phase, str(row.step), duration(row.stalled_s)]
        for row in behind[:most]
    ]
    headings = ["JOB", "RANK", "NODE", "PHASE", "STEP", "FOR"]
    return "ranks past their deadline without progress:\n" + plain(headings, rows) if rows else ""


def _trouble(status: pb.StatusReply) -> str:
    """The nodes that are not up, or not fully eligible."""
    rows = [
        [
            row.node,
            row.state,
            f"{duration(row.last_heard_s)} ago",
            brief(row.reason or row.standing) or NOTHING,
        ]
        for row in status.nodes
        if row.state != "up" or row.standing not in ("", "ok")
    ]
    return plain(["NODE", "STATE", "HEARD", "REASON"], rows) if rows else ""


COMMANDS = {
    "top": CommandSpec(
        "Show all jobs with steps per second, the ranks that make no progress, and the nodes with problems. "
        "Refreshes until Ctrl-C.",
        top,
        _flags,
    )
}
