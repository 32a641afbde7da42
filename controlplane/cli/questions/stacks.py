"""`holdfast stacks`: show where the ranks of a running job are now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import FAILED, OK
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.flags.ranks import rank_list
from controlplane.cli.questions.outputs import add_output, data, for_programs
from controlplane.cli.questions.queries import add_coordinator, find_job
from controlplane.cli.questions.tables import message
from controlplane.reporting.quantities import duration
from controlplane.wire.bounds import COUNT_MAX

if TYPE_CHECKING:
    import argparse

    from controlplane.wire import control_pb2 as pb

TIMEOUT_S = 20.0
ABOUT = (
    "Show where the ranks of a running job are now: what each does, for how long, its collective operations, "
    "and the stacks of its threads. Ranks that hang in native code answer too. Nothing is stopped, and no "
    "rank is judged by it."
)


def _flags(parser: Parser) -> None:
    parser.add_argument("job", help="name of the job")
    parser.add_argument(
        "--rank", "--ranks", type=rank_list(COUNT_MAX), default=(), metavar="R,R-R",
        help="only these ranks (default: all)",
    )  # fmt: skip
    add_output(parser, "wide: the same as table", json_flag=True)
    add_coordinator(parser)


def stacks(values: argparse.Namespace) -> int:
    """Show stacks. Exit code 1 when a rank gave none."""
    return asyncio.run(_stacks(values))


async def _stacks(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, TIMEOUT_S, access=access_of(values)) as admin:
        find_job(await admin.status(), values.job)
        rows = (await admin.stacks(values.job, values.rank)).ranks
    if for_programs(values.output):
        print(data(values.output, {"job": values.job, "ranks": [as_data(row) for row in rows]}))
    else:
        print("\n\n".join(as_text(row) for row in rows))
    return FAILED if any(row.reason for row in rows) else OK


def as_data(row: pb.RankStacks) -> dict[str, Any]:
    """One rank, for programs, with the field names of the wire."""
    head = {"node": row.node, "rank": row.rank, "reason": row.reason}
    return head if row.reason else head | message(row.report)


def as_text(row: pb.RankStacks) -> str:
    """One rank, for people."""
    head = f"rank {row.rank} on {row.node}"
    if row.reason:
        return f"{head}: no stacks: {row.reason}"
    report = row.report
    late = ", past its deadline" if report.stalled else ""
    lines = [
        f"{head}: step {report.step}, {report.activity or 'running'} for {duration(report.since_s)}{late}"
    ]
    if report.silent_s > 0:
        lines.append(f"  its SDK has not answered; its last heartbeat was {duration(report.silent_s)} ago")
    lines += map(_group, report.collectives)
    return "\n".join([*lines, *(f"  {line}" for line in report.stacks.splitlines())])


def _group(found: pb.Collective) -> str:
    """How far a process group has come; what torch's flight recorder does not know is left out."""
    ended = f", {found.ended} ended" if found.ended >= 0 else ""
    last = f"; last {found.operation}" if found.operation else ""
    return f"  group {found.group}: {found.sequence} operations begun{ended}{last}"


COMMANDS = {"stacks": CommandSpec(ABOUT, stacks, _flags)}
