"""`holdfast demo`: train, kill processes, recover, and compare with an undisturbed run."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.demo.faults import (
    KINDS,
    impossible_fault,
    networks_apart,
    read_fault,
    settled,
    stages_of,
)
from controlplane.cli.demo.kills import PlannedKill, impossible, read_kill
from controlplane.cli.demo.options import DemoOptions
from controlplane.cli.errors import INTERRUPTED, CliError, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser, seconds, whole
from controlplane.cli.local.network_spaces import NodeNetworks, missing
from holdfast import examples, removal
from holdfast.launch.errand import TERMINATED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from controlplane.cli.demo.faults import PlannedFault

SCRIPT = Path(examples.__file__).with_name("train_gpt.py")
PLANTED_SCRIPTS = {1: SCRIPT.with_name("planted_gpt.py"), 2: SCRIPT.with_name("planted_pipeline.py")}
"""The script that plays faults, by its number of pipeline stages."""
NODES, PER_NODE = 2, 2
APART = 4
"""Nodes of a demo in which each has a network of its own, with one rank each."""
STEPS = 60
DIAGNOSED_STEPS = 5000
"""Steps of a demo of the diagnosis, unless --steps says otherwise: more than it watches in WATCH_S."""
WATCH_S = 45.0
"""How long the job is watched after the last fault has begun: a dozen windows until a fault is found, on a
crowded machine three times as many; and for a hang, its floor, the inquiry and the recovery."""
APART_WATCH_S = 120.0
"""The same where links are probed: two rounds, 15 s apart, after communication has grown."""
WATCH_MOST = 4.0
"""So many times as long at most, where steps are slow and a fault needs a number of them to show."""
EPILOG = """Exit code 0 means: the final weights are identical, and no sample was repeated or skipped.
With --doctor it means: the run trained as long as it was watched, whatever was found.

faults of --plant, each with rank:R, at:STEP, factor:F and seed:S as far as it has them:
""" + "\n".join(f"  {name}: {kind.about}" for name, kind in KINDS.items())


def demo(values: argparse.Namespace) -> int:
    """Run the demo. Exit code 0 when the weights are identical and no sample was repeated or skipped."""
    wish = _wish(values)
    if importlib.util.find_spec("torch") is None:
        raise CliError(f"it needs torch, which {sys.executable} lacks: pip install 'holdfast[torch]'")
    networks = _networks(wish)
    with passing_folder("holdfast-demo-", keep=wish.keep) as folder:
        if wish.faults:
            from controlplane.cli.demo.diagnosed import show_diagnosed

            script = PLANTED_SCRIPTS[stages_of(wish.faults)]
            with networks or contextlib.nullcontext():
                return asyncio.run(interruptible(show_diagnosed(wish, script, folder, networks)))
        from controlplane.cli.demo.show import show

        return asyncio.run(interruptible(show(wish, SCRIPT, folder)))


@contextlib.contextmanager
def passing_folder(prefix: str, *, keep: bool) -> Iterator[Path]:
    """A new folder, which is removed at the end, or named if it is to stay."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    removal.claim(folder)
    try:
        yield folder
    finally:
        if keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            _remove(folder)


def _networks(wish: DemoOptions) -> NodeNetworks | None:
    """A network for each node, where a fault needs it. Raises CliError where this machine has none."""
    if not networks_apart(wish.faults):
        return None
    if why := missing():
        raise CliError(f"--plant slow-link is not possible here: {why}; every other fault is")
    return NodeNetworks(wish.nodes)


def _remove(folder: Path) -> None:
    try:
        removal.tree(folder)
    except OSError as error:
        print(f"{folder} was not removed: {error}", file=sys.stderr)


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "--steps",
        type=whole(2, "a process is killed after the first step"),
        metavar="N",
        help=f"steps to train (default: {STEPS}; with --doctor {DIAGNOSED_STEPS})",
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
        "--doctor",
        action="store_true",
        help="kill nothing: plant faults and show what the diagnosis finds (default: none is planted)",
    )
    parser.add_argument(
        "--plant",
        type=read_fault,
        action="append",
        metavar="KIND=rank:R,at:STEP",
        help="with --doctor: a fault to plant; repeatable; the kinds are below",
    )
    parser.add_argument(
        "--watch-s",
        type=seconds(1.0),
        metavar="SECONDS",
        help=f"with --doctor: how long to watch after the last fault has begun (default: {WATCH_S:.0f}; with "
        f"slow-link {APART_WATCH_S:.0f}; up to {WATCH_MOST:.0f} times as long if a fault needs more steps)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object, on the last line"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep logs, ledgers, checkpoints and journals after the demo"
    )
    parser.add_argument(
        "--nodes",
        type=whole(1, "a job needs a node"),
        metavar="N",
        help=f"nodes (default: {NODES}; with slow-link {APART})",
    )
    parser.add_argument(
        "--nproc-per-node",
        type=whole(1, "a node needs a rank"),
        metavar="N",
        help=f"ranks per node (default: {PER_NODE}; with slow-link 1)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the moments within a step when processes are killed"
    )
    parser.add_argument(
        "--timeout-s", type=seconds(1.0), default=900.0, metavar="SECONDS", help="give up after this time"
    )


def _wish(values: argparse.Namespace) -> DemoOptions:
    apart = networks_apart(values.plant or ())
    values.nodes = values.nodes or (APART if apart else NODES)
    values.nproc_per_node = values.nproc_per_node or (1 if apart else PER_NODE)
    world = values.nodes * values.nproc_per_node
    watch_s = values.watch_s or (APART_WATCH_S if apart else WATCH_S)
    longer = max(1, round(watch_s / WATCH_S))
    values.steps = values.steps or (DIAGNOSED_STEPS * longer if values.doctor else STEPS)
    faults = _faults(values)
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
        faults,
        watch_s,
        values.watch_s or watch_s * WATCH_MOST,
    )


def _faults(values: argparse.Namespace) -> tuple[PlannedFault, ...]:
    """The faults to plant; none of them: a demo that kills. Raises UsageError."""
    for flag, given in (("--plant", values.plant), ("--watch-s", values.watch_s)):
        if given and not values.doctor:
            raise UsageError(f"{flag} is for --doctor: add it")
    if not values.doctor:
        return ()
    if values.kill:
        raise UsageError("--kill and --doctor: give one of them")
    faults = tuple(settled(each, values.steps) for each in values.plant or [read_fault("none")])
    wrong = impossible_fault(faults, values.steps, values.nodes, values.nproc_per_node)
    if wrong:
        raise UsageError(f"--plant: {wrong}")
    return faults


async def interruptible(work: Any) -> int:
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
