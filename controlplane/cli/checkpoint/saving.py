"""`holdfast checkpoint now`: save the newest state of a running job."""

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

    from controlplane.wire import control_pb2 as pb

_POLL_S = 0.2


def _flags(parser: Parser) -> None:
    parser.add_argument("job", help="name of the job")
    parser.add_argument("--reason", default="by hand", help=REASON)
    parser.add_argument("--wait", action="store_true", help="return only when the checkpoint is committed")
    parser.add_argument(
        "--timeout-s", type=whole(1, "seconds"), default=600, metavar="S",
        help="with --wait: give up after S seconds (default: 600)",
    )  # fmt: skip
    add_coordinator(parser)


def now(values: argparse.Namespace) -> int:
    """Ask for a checkpoint. Exit code 1 when none can be made, or with --wait when none was committed in
    time."""
    return asyncio.run(_ask(values))


async def _ask(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        before = {row.id for row in _rows(await admin.status(), values.job)}
        reply = await admin.checkpoint(values.job, values.reason)
        print(f"job {values.job}: {reply.outcome}; {reply.reason}", flush=True)
        if values.wait:
            print(f"job {values.job}: {await _committed(admin, values, before)} is committed")
    return OK


async def _committed(admin: AdminClient, values: argparse.Namespace, before: set[str]) -> str:
    """The id of the next checkpoint that is published. Raises CliError when none is in time."""
    ends = time.monotonic() + values.timeout_s
    while time.monotonic() < ends:
        rows = _rows(await status_by(admin, ends), values.job)
        done = [row.id for row in rows if row.published and not row.bad and row.id not in before]
        if done:
            return done[-1]
        await asyncio.sleep(_POLL_S)
    raise CliError(
        f"job {values.job} has committed no checkpoint within {values.timeout_s} s: see `holdfast events`"
    )


def _rows(reply: pb.StatusReply, job: str) -> list[pb.CheckpointRecord]:
    return [row for row in reply.checkpoints if row.job == job]


COMMANDS = {
    "now": CommandSpec(
        "Save the newest complete snapshot of a running job to its storage now, or the next one when that is "
        "saved already. Training goes on.",
        now,
        _flags,
    )
}
