"""`holdfast drain`, `cordon` and `uncordon`: a node is to be free of ranks, or to take no new ones."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from controlplane.cli.client import Admin
from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import Parser, whole
from controlplane.cli.orders.follow import status_by
from controlplane.cli.questions.queries import add_coordinator

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_POLL_S = 0.2


def drain(argv: Sequence[str]) -> int:
    """Have a node's ranks moved at a step boundary. Exit code 1 when that cannot be."""
    parser = Parser(
        "drain",
        "Free a node of ranks: they move to another node, or the job shrinks, at a step boundary. The node "
        "takes no new ranks until `holdfast uncordon`.",
    )
    parser.add_argument("node", help="name of the node")
    parser.add_argument(
        "--deadline-s",
        type=whole(0, "seconds until the ranks are moved in any case"),
        default=300,
        metavar="S",
        help="after so long the ranks are moved in any case (default: 300)",
    )
    parser.add_argument("--force", action="store_true", help="even when that parks a job, or costs it steps")
    parser.add_argument("--reason", default="by hand", help="what the journal shall say")
    parser.add_argument("--wait", action="store_true", help="stay until no rank is left there")
    add_coordinator(parser)
    return asyncio.run(_drain(parser.read(argv)))


async def _drain(values: argparse.Namespace) -> int:
    async with Admin(values.coordinator, access=access_of(values)) as admin:
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


def cordon(argv: Sequence[str]) -> int:
    """Have a node take no new ranks."""
    parser = Parser("cordon", "Have a node take no new ranks; those it has stay.")
    return _mark(parser, argv, on=True)


def uncordon(argv: Sequence[str]) -> int:
    """Have a node take ranks again."""
    parser = Parser("uncordon", "Have a node take ranks again, also after a drain; its excluded devices too.")
    return _mark(parser, argv, on=False)


def _mark(parser: Parser, argv: Sequence[str], *, on: bool) -> int:
    parser.add_argument("node", help="name of the node")
    parser.add_argument("--reason", default="by hand", help="what the journal shall say")
    add_coordinator(parser)
    return asyncio.run(_cordon(parser.read(argv), on))


async def _cordon(values: argparse.Namespace, on: bool) -> int:
    async with Admin(values.coordinator, access=access_of(values)) as admin:
        reply = await admin.cordon(values.node, values.reason, on=on)
    print(f"node {values.node}: {reply.outcome}")
    return OK


COMMANDS = {"drain": drain, "cordon": cordon, "uncordon": uncordon}
