"""`holdfast drain`, `cordon` and `uncordon`: move ranks off a node, refuse new ones, or allow them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser, whole
from controlplane.cli.orders.follow import status_by
from controlplane.cli.questions.queries import add_coordinator

if TYPE_CHECKING:
    import argparse

_POLL_S = 0.2
REASON = "the reason that the journal records"


def _drain_flags(parser: Parser) -> None:
    parser.add_argument("node", help="name of the node")
    parser.add_argument(
        "--deadline-s",
        type=whole(0, "seconds until the remaining ranks are killed"),
        default=300,
        metavar="S",
        help="kill the ranks that have not moved after S seconds (default: 300)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="drain even if the job must then wait for nodes, or loses steps",
    )
    parser.add_argument("--reason", default="by hand", help=REASON)
    parser.add_argument("--wait", action="store_true", help="return only when the node has no rank left")
    add_coordinator(parser)


def drain(values: argparse.Namespace) -> int:
    """Move a node's ranks elsewhere at a step boundary. Exit code 1 when that is impossible."""
    return asyncio.run(_drain(values))


async def _drain(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        reply = await admin.drain(values.node, values.reason, float(values.deadline_s), force=values.force)
        print(f"node {values.node}: {reply.outcome}; {reply.reason}", flush=True)
        ends = time.monotonic() + values.deadline_s + 60
        while values.wait and reply.outcome != "drained":
            row = next((row for row in (await status_by(admin, ends)).nodes if row.node == values.node), None)
            if row is None:
                print(f"node {values.node}: gone")
                return OK
            if row.standing == "drained":
                print(f"node {values.node}: drained")
                return OK
            if row.standing != "draining" or time.monotonic() > ends:
                raise CliError(f"node {values.node} is not drained: {row.standing}; {row.reason}")
            await asyncio.sleep(_POLL_S)
    return OK


def _cordon_flags(parser: Parser) -> None:
    parser.add_argument("node", help="name of the node")
    parser.add_argument("--reason", default="by hand", help=REASON)
    add_coordinator(parser)


def cordon(values: argparse.Namespace) -> int:
    """Give a node no new ranks."""
    return asyncio.run(_cordon(values, on=True))


def uncordon(values: argparse.Namespace) -> int:
    """Let a node take ranks again."""
    return asyncio.run(_cordon(values, on=False))


async def _cordon(values: argparse.Namespace, *, on: bool) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        reply = await admin.cordon(values.node, values.reason, on=on)
    print(f"node {values.node}: {reply.outcome}")
    return OK


COMMANDS = {
    "drain": CommandSpec(
        "Move all ranks off a node, at the end of a step: to another node, or the job goes on with fewer "
        "nodes. The node takes no new ranks until `holdfast uncordon`.",
        drain,
        _drain_flags,
    ),
    "cordon": CommandSpec("Give a node no new ranks. The ranks that it has stay.", cordon, _cordon_flags),
    "uncordon": CommandSpec(
        "Let a node take ranks again, after a cordon or a drain. Its excluded devices count again too.",
        uncordon,
        _cordon_flags,
    ),
}
