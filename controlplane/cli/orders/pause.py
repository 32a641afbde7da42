"""`holdfast pause` and `resume`: stop a job at a step boundary with its state in memory, or continue it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser, whole
from controlplane.cli.orders.drain import REASON
from controlplane.cli.orders.follow import status_by
from controlplane.cli.questions.queries import add_coordinator

if TYPE_CHECKING:
    import argparse

_POLL_S = 0.2
_OVER = ("finished", "failed", "stopped")


PAUSE = (
    "Stop a job at the end of a step. Its processes stay, with their state and their devices; no step is "
    "lost. Failures in the pause are repaired, and a change of leaders does not end it. `holdfast resume` "
    "continues."
)


def _flags(parser: Parser) -> None:
    parser.add_argument("job", help="name of the job")
    parser.add_argument("--reason", default="by hand", help=REASON)
    parser.add_argument("--wait", action="store_true", help="return only when it is done")
    parser.add_argument(
        "--timeout-s", type=whole(1, "seconds"), default=300, metavar="S",
        help="with --wait: give up after S seconds (default: 300)",
    )  # fmt: skip
    add_coordinator(parser)


def pause(values: argparse.Namespace) -> int:
    """Stop a job at a step boundary. Exit code 1 when it cannot be paused."""
    return asyncio.run(_ask(values, on=True))


def resume(values: argparse.Namespace) -> int:
    """Let a paused job go on. Exit code 1 when there is no job of this name."""
    return asyncio.run(_ask(values, on=False))


async def _ask(values: argparse.Namespace, *, on: bool) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        reply = await admin.pause(values.job, values.reason, on=on)
        print(f"job {values.job}: {reply.outcome}; {reply.reason}", flush=True)
        if values.wait:
            await _until(admin, values, "paused" if on else "running")
            print(f"job {values.job}: {'paused' if on else 'running'}")
    return OK


async def _until(admin: AdminClient, values: argparse.Namespace, phase: str) -> None:
    """Return once the job is in this phase. Raises CliError when it ends before, or takes too long."""
    ends = time.monotonic() + values.timeout_s
    while True:
        row = next((row for row in (await status_by(admin, ends)).jobs if row.job == values.job), None)
        if row is None or (row.phase in _OVER and row.phase != phase):
            raise CliError(f"job {values.job} is {row.phase if row else 'gone'}")
        if row.phase == phase:
            return
        if time.monotonic() > ends:
            raise CliError(
                f"job {values.job} is not {phase} after {values.timeout_s} s: {row.phase}; {row.reason}"
            )
        await asyncio.sleep(_POLL_S)


COMMANDS = {
    "pause": CommandSpec(PAUSE, pause, _flags),
    "resume": CommandSpec("Let a paused job go on from the step where it stopped.", resume, _flags),
}
