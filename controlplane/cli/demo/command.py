"""`holdfast demo`: train, kill processes, recover, and compare with an undisturbed run."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.demo.kills import PlannedKill, impossible, read_kill
from controlplane.cli.demo.options import DemoOptions
from controlplane.cli.errors import INTERRUPTED, TERMINATED, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser, seconds, whole
from holdfast import examples, removal

if TYPE_CHECKING:
    import argparse

SCRIPT = Path(examples.__file__).with_name("train_gpt.py")
EPILOG = "Exit code 0 means: the final weights are identical, and no sample was repeated or skipped."


def demo(values: argparse.Namespace) -> int:
    """Run the demo. Exit code 0 when the weights are identical and no sample was repeated or skipped."""
    wish = _wish(values)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    removal.claim(folder)
    try:
        from controlplane.cli.demo.show import show

        return asyncio.run(_interruptible(show(wish, SCRIPT, folder)))
    finally:
        if wish.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        removal.tree(folder)
    except OSError as error:
        print(f"{folder} was not removed: {error}", file=sys.stderr)


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "--steps",
        type=whole(2, "a process is killed after the first step"),
        default=60,
        metavar="N",
        help="steps to train",
    )
    parser.add_argument(
        "--kill",
        type=read_kill,
        action="append",
        metavar="WHOM@step=N",
        help="what to kill at which step: rank=N, agent=N, node=N, coordinator, etcd, all, or stop=rank:N "
        "(SIGSTOP); repeatable (default: rank=2 in the middle)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object, on the last line"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep logs, ledgers, checkpoints and journals after the demo"
    )
    parser.add_argument("--nodes", type=whole(1, "a job needs a node"), default=2, metavar="N", help="nodes")
    parser.add_argument(
        "--nproc-per-node",
        type=whole(1, "a node needs a rank"),
        default=2,
        metavar="N",
        help="ranks per node",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the moments within a step when processes are killed"
    )
    parser.add_argument(
        "--timeout-s", type=seconds(1.0), default=900.0, metavar="SECONDS", help="give up after this time"
    )


def _wish(values: argparse.Namespace) -> DemoOptions:
    world = values.nodes * values.nproc_per_node
    kills = values.kill or [PlannedKill("rank", max(1, values.steps // 2), min(2, world - 1))]
    for kill in kills:
        wrong = impossible(kill, values.steps, values.nodes, world)
        if wrong:
            raise UsageError(f"--kill: {wrong}")
    ordered = tuple(sorted(kills, key=lambda kill: kill.step))
    return DemoOptions(
        values.steps,
        values.nodes,
        values.nproc_per_node,
        ordered,
        values.json,
        values.keep,
        values.seed,
        values.timeout_s,
    )


async def _interruptible(work: Any) -> int:
    """Run `work`; Ctrl-C, SIGTERM and SIGHUP cancel it, and it then ends what it started."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    asked: list[signal.Signals] = []

    def ask(number: signal.Signals) -> None:
        asked.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ask, number)
    try:
        code: int = await task
    except asyncio.CancelledError:
        return INTERRUPTED if signal.SIGINT in asked else TERMINATED
    return code


COMMANDS = {
    "demo": CommandSpec(
        "Train a small GPT on this machine (by default 2 nodes with 2 ranks each), kill processes, train "
        "again without failures, and compare the final weights. Takes about a minute; needs no GPU.",
        demo,
        _flags,
        epilog=EPILOG,
    )
}
