"""`holdfast wait`: return when a job is in a phase, with an exit code that says how it went."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import FAILED, OK, TIMED_OUT, UnreachableError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.moments import age
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.orders.follow import ENDINGS, PAUSE_S, FollowedEnd, end_message, status_by
from controlplane.cli.questions.queries import add_coordinator, find_job

if TYPE_CHECKING:
    import argparse

    from controlplane.wire import control_pb2 as pb

ENDED = "ended"
LASTING = ("pending", "running", "parked", "paused", *ENDINGS)
"""Phases that last. The others may begin and end between two looks."""
ABOUT = (
    "Wait until a job is in a phase. Exit code 0: it is, or was already; 1: it ended otherwise, or does not "
    "exist; 3: no coordinator answered; 124: --timeout passed first."
)


def _flags(parser: Parser) -> None:
    words = (*LASTING, ENDED)
    parser.add_argument("job", help="name of the job")
    parser.add_argument(
        "--for", dest="phase", type=one_of(*words), default="finished", metavar="|".join(words),
        help="what to wait for; ended: finished, failed or stopped (default: finished)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=age, default=None, metavar="TIME",
        help="how long, as 30s, 5m or 1h30m; 0s: look once (default: for ever)",
    )  # fmt: skip
    add_coordinator(parser)


def wait(values: argparse.Namespace) -> int:
    """Wait for a phase of a job, and return the exit code."""
    return asyncio.run(waited(values))


async def waited(values: argparse.Namespace) -> int:
    """Wait, say what came of it, and return the exit code. Raises UnreachableError, CliError.

    A coordinator that does not answer at once is an error; one that goes away meanwhile is waited for."""
    ends = math.inf if values.timeout is None else time.monotonic() + values.timeout
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        status = await admin.status()
        while True:
            row = find_job(status, values.job)
            if (code := _code(row, values.phase)) is not None:
                _say(row, values.phase, code)
                return code
            if time.monotonic() >= ends:
                break
            await asyncio.sleep(max(0.0, min(PAUSE_S, ends - time.monotonic())))
            try:
                status = await status_by(admin, ends)
            except UnreachableError as error:
                print(f"holdfast wait: {error}", file=sys.stderr)
                break
    print(f"holdfast wait: job {row.job} is still {row.phase}, and not {values.phase}", file=sys.stderr)
    return TIMED_OUT


def _code(row: pb.JobRow, phase: str) -> int | None:
    """The exit code, if the waiting is over; None: it goes on."""
    if row.phase == phase or (phase == ENDED and row.phase in ENDINGS):
        return OK
    return FAILED if row.phase in ENDINGS else None


def _say(row: pb.JobRow, phase: str, code: int) -> None:
    if row.phase not in ENDINGS:
        print(f"job {row.job} is {row.phase}")
        return
    message = end_message(FollowedEnd(row.job, row.phase, row.reason))
    print(message, file=sys.stdout if code == OK else sys.stderr)


COMMANDS = {"wait": CommandSpec(ABOUT, wait, _flags)}
