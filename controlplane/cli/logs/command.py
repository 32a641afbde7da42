"""`holdfast logs`: show what the ranks of a job have written, wherever they run."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import FAILED, OK, CliError, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.moments import MOMENT, moment
from controlplane.cli.flags.parser import CommandSpec, Parser, whole
from controlplane.cli.flags.ranks import rank_list
from controlplane.cli.logs.reading import FoundLogs, LogView, RankLog, find, note
from controlplane.cli.questions.queries import add_coordinator, find_job
from controlplane.core.records.logs import NO_END
from controlplane.reporting import log_stints
from controlplane.wire.bounds import GENERATION_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.reporting.log_stints import LogStint
    from controlplane.wire import control_pb2 as pb

RANKS_MAX = 16_384
FOLLOWED_MAX = 64
TIMEOUT_S = 20.0
"""Agents may take some seconds to say which logs they have."""
ABOUT = (
    "Show what the ranks of a job have written to standard output and error: the process that has the rank "
    "now, unless a flag says another. Agents keep the newest 64 MiB of each rank (--rank-log-bytes of the "
    "agent), through restarts; of lost nodes the leader has the last 64 KiB. What is not kept any more is "
    "said."
)


def _flags(parser: Parser) -> None:
    parser.add_argument("job", help="name of the job")
    parser.add_argument(
        "--rank", "--ranks", type=rank_list(RANKS_MAX), default=(), metavar="R,R-R",
        help="only these ranks (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--follow", action="store_true",
        help="go on with what is written, through restarts of the rank, until the job ends or Ctrl-C",
    )  # fmt: skip
    parser.add_argument(
        "--since", type=moment, default=0.0, metavar="WHEN",
        help=f"only what was written since then: {MOMENT}",
    )  # fmt: skip
    parser.add_argument(
        "--tail", type=whole(0, "it is a number of lines", (1 << 31) - 1), default=None, metavar="N",
        help="only the last N lines of each rank (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "-p", "--previous", action="store_true", help="the process that had the rank before this one"
    )
    parser.add_argument(
        "--generation", type=whole(1, "they are numbered from 1", GENERATION_MAX), default=None, metavar="G",
        help="what was written in this generation",
    )  # fmt: skip
    parser.add_argument(
        "--prefix", action=argparse.BooleanOptionalAction, default=None,
        help="begin each line with node and rank (default: with several ranks)",
    )  # fmt: skip
    add_coordinator(parser)


def logs(values: argparse.Namespace) -> int:
    """Show logs. Exit code 1 when some of what was asked for does not exist."""
    if values.previous and values.generation is not None:
        raise UsageError("--previous and --generation name two different things: give one of them")
    if values.follow and (values.previous or values.generation is not None):
        raise UsageError(
            "-f follows the process that has the rank now: give it without --previous, --generation"
        )
    return asyncio.run(answered(values))


async def answered(values: argparse.Namespace) -> int:
    """Show logs, and return the exit code. Raises CliError."""
    async with AdminClient(values.coordinator, TIMEOUT_S, access=access_of(values)) as admin:
        status = await admin.status()
        find_job(status, values.job)
        former = values.previous or values.generation is not None
        found = await find(admin, values.job, values.rank, former=former)
        ranks = values.rank or sorted(
            {*log_stints.ranks_of(found.stints), *_unasked(status, values.job, found)}
        )
        if not ranks:
            raise CliError(f"job {values.job} has no logs: no process of it has begun{found.why()}")
        if values.follow and len(ranks) > FOLLOWED_MAX:
            raise UsageError(f"{len(ranks)} ranks: -f follows {FOLLOWED_MAX} at most, name them with --rank")
        chosen = [_chosen(values, found, rank) for rank in ranks]
        stints = [stint for stint in chosen if stint is not None]
        tail = NO_END if values.tail is None else values.tail
        prefix = len(ranks) > 1 if values.prefix is None else values.prefix
        view = LogView(values.job, tail, values.since, prefix)
        await _show([RankLog(admin, view, stint) for stint in stints], follow=values.follow)
    away = any(stint.node in found.silent for stint in stints)
    return OK if len(stints) == len(ranks) and not away else FAILED


async def _show(logs: Sequence[RankLog], *, follow: bool) -> None:
    if not follow:
        for log in logs:
            await log.show()
        return
    await asyncio.gather(*(log.follow() for log in logs))


def _unasked(status: pb.StatusReply, job: str, found: FoundLogs) -> list[int]:
    """The ranks on nodes that could not be asked: they are missing, and not without logs."""
    rows = (row for row in status.ranks if row.job == job and row.rank >= 0)
    return [row.rank for row in rows if row.node in found.silent]


def _chosen(values: argparse.Namespace, found: FoundLogs, rank: int) -> LogStint | None:
    """The part that is asked for; None, with a note, when there is none."""
    if values.generation is not None:
        stint = log_stints.in_generation(found.stints, rank, values.generation)
        known = ", ".join(map(str, log_stints.generations_of(found.stints, rank))) or "none"
        missing = f"no log of generation {values.generation} is found; there are logs of generations: {known}"
    elif values.previous:
        stint, missing = log_stints.previous(found.stints, rank), "no log of an earlier process is found"
    else:
        stint, missing = log_stints.current(found.stints, rank), "no log is found"
    if stint is None:
        note(f"rank {rank}: {missing}{found.why()}")
    elif stint.node in found.silent:
        note(f"rank {rank}: node {stint.node}: {found.silent[stint.node]}")
    elif found.silent and values.previous:
        note(f"rank {rank}: a later process may have run where nobody can look{found.why()}")
    return stint


COMMANDS = {"logs": CommandSpec(ABOUT, logs, _flags)}
