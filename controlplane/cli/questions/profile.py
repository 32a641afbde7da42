"""`holdfast profile`: have ranks of a running job profile their next steps, and show the operators."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from controlplane.analysis import small_kernels
from controlplane.cli.client import AdminClient
from controlplane.cli.errors import FAILED, OK
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser, number, whole
from controlplane.cli.flags.ranks import rank_list
from controlplane.cli.orders.drain import REASON
from controlplane.cli.questions.queries import add_coordinator
from controlplane.cli.questions.tables import plain
from controlplane.daemon.server.admin import PROFILED_MAX
from controlplane.reporting.quantities import duration, size
from controlplane.wire.bounds import PROFILE_STEPS_MAX, PROFILE_TIMEOUT_MAX_S

if TYPE_CHECKING:
    import argparse

    from controlplane.wire import control_pb2 as pb

ABOUT = (
    "Profile the next complete steps of some ranks of a running job with torch's profiler, without starting "
    "anything again. Each rank writes a trace for Perfetto or chrome://tracing beside its log on its node. "
    "The command waits, and prints where the traces are and which operators took the time."
)


def _flags(parser: Parser) -> None:
    parser.add_argument("job", help="name of the job")
    parser.add_argument(
        "--ranks",
        type=rank_list(PROFILED_MAX),
        default=(0,),
        metavar="R,R-R",
        help="the ranks to profile (default: 0)",
    )
    parser.add_argument(
        "--steps", type=whole(1, "nothing would be recorded", PROFILE_STEPS_MAX), default=5, metavar="N",
        help=f"how many steps, 1 to {PROFILE_STEPS_MAX} (default: 5)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout-s", type=whole(1, "no step is that short", int(PROFILE_TIMEOUT_MAX_S)), default=300,
        metavar="S", help="give up a rank that has not completed the steps after S seconds (default: 300)",
    )  # fmt: skip
    parser.add_argument(
        "--small-kernel-us", type=number, default=small_kernels.SMALL_US, metavar="US",
        help="an operator is small when it takes less than US microseconds on the device (default: "
        f"{small_kernels.SMALL_US:g}, what launching one takes)",
    )  # fmt: skip
    parser.add_argument("--reason", default="by hand", help=REASON)
    parser.add_argument("--json", action="store_true", help="print JSON: one object with a list of all ranks")
    add_coordinator(parser)


def profile(values: argparse.Namespace) -> int:
    """Profile ranks of a job. Exit code 1 when a rank gave no trace."""
    return asyncio.run(_profile(values))


async def _profile(values: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        answers = admin.profile(
            values.job, values.ranks, steps=values.steps, timeout_s=values.timeout_s, reason=values.reason
        )
        async for reply in answers:
            rows.append(row(reply, values.small_kernel_us))
            if not values.json:
                print(text(rows[-1]), flush=True)
    if values.json:
        rows.sort(key=lambda each: each["rank"])
        print(json.dumps({"job": values.job, "ranks": rows}, indent=2))
    return OK if rows and not any(each["reason"] for each in rows) else FAILED


def row(reply: pb.ProfileReply, small_us: float = small_kernels.SMALL_US) -> dict[str, Any]:
    """One rank's answer, for programs. `share`: of the time of all operators, on the device if it has any."""
    found = reply.profiled
    key, total = ("device_s", found.device_s) if found.device_s > 0 else ("cpu_s", found.cpu_s)
    operators = [
        {
            "name": each.name,
            "calls": each.calls,
            "cpu_s": each.cpu_s,
            "device_s": each.device_s,
            "share": getattr(each, key) / total if total > 0 else 0.0,
        }
        for each in found.operators
    ]
    return {
        "rank": reply.rank,
        "node": reply.node,
        "member": found.member,
        "reason": found.reason,
        "path": found.path,
        "bytes": found.bytes,
        "first_step": found.first_step,
        "steps": found.steps,
        "generation": found.generation,
        "cpu_s": found.cpu_s,
        "device_s": found.device_s,
        "operators": operators,
        "no_table": found.no_table,
        "small_kernels": dataclasses.asdict(
            small_kernels.judge(
                [
                    small_kernels.OperatorCost(each.name, each.calls, each.device_s)
                    for each in found.operators
                ],
                found.cpu_s,
                found.device_s,
                small_us,
            )
        ),
    }


def text(found: dict[str, Any]) -> str:
    """One rank's answer, for people."""
    head = f"rank {found['rank']} on {found['node']}"
    if found["reason"]:
        return f"{head}: no profile: {found['reason']}"
    last = found["first_step"] + found["steps"] - 1
    lines = [f"{head}: steps {found['first_step']} to {last}, {size(found['bytes'])}: {found['path']}"]
    if not found["operators"]:
        return "\n".join([*lines, f"  {found['no_table'] or 'no operator was recorded'}"])
    device = found["device_s"] > 0
    headings = ("SHARE", *(("ON DEVICE",) if device else ()), "ON CPU", "CALLS", "OPERATOR")
    rows = [
        (
            f"{each['share']:.1%}",
            *((_time(each["device_s"]),) if device else ()),
            _time(each["cpu_s"]),
            str(each["calls"]),
            each["name"],
        )
        for each in found["operators"]
    ]
    table = plain(headings, rows)
    return "\n".join([*lines, *(f"  {line}" for line in table.splitlines()), *_small_kernels(found)])


def _small_kernels(found: dict[str, Any]) -> list[str]:
    """What is said of small kernels below the table: nothing without a device, or where all is well."""
    verdict = found["small_kernels"]
    if found["device_s"] <= 0 or verdict["small"] is False:
        return []
    if verdict["small"] is None:
        return [f"  small kernels: unknown: {verdict['reason']}"]
    return [f"  small kernels: {verdict['reason']}", f"  do: {verdict['recommendation']}"]


def _time(spent_s: float) -> str:
    return duration(spent_s) if spent_s >= 1 else f"{spent_s * 1000:.2f} ms"


COMMANDS = {"profile": CommandSpec(ABOUT, profile, _flags)}
