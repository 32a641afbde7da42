"""`holdfast simulate`: estimate what failures cost a cluster, with the real decision core."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.analysis.goodput import CAUSES
from controlplane.cli.errors import OK, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser, number
from controlplane.cli.questions.outputs import add_output, data
from controlplane.cli.questions.tables import plain
from controlplane.reporting.quantities import duration
from controlplane.simulation import mixes, picture, running, trace
from controlplane.simulation.costs import Setup, split
from controlplane.simulation.failures import FailureInputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controlplane.simulation.failures import Failures
    from controlplane.simulation.outcome import SimulationOutcome

ABOUT = (
    "Simulate days of failures on a cluster, decided by the same code that a coordinator runs. Prints the "
    "goodput (the share of node time that made progress), what the rest was lost to, and, with --compare, "
    "which setting is best. Give the failures by one of --trace, --mix, --mtbf-s or --node-mtbf-s."
)
EPILOG = """examples:
  holdfast simulate --trace FILE --nodes 400 --compare spares=0,2,8
  holdfast simulate --trace FILE --nodes 400 --fixed --compare spares=0,10,20,40
  holdfast simulate --trace FILE --nodes 400 --compare fixed=1,0
  holdfast simulate --mtbf-s 3600 --nodes 64 --stall-s 2 --compare checkpoint-every-s=30,120,480
  holdfast simulate --mix llama3 --nodes 2048 --nproc-per-node 8 --days 54 --picture run.svg
  holdfast simulate --mtbf-s 600 --nodes 1000 --days 2 --checkpoint-every-s 10"""


def run(values: argparse.Namespace) -> int:
    """Simulate and print the result. Exit code 2, with a solution, for input that cannot be simulated."""
    try:
        setup, failures = _setup(values), _failures(values)
        if values.compare:
            field, numbers = running.sweep(values.compare)
            setups = running.variants(setup, field, numbers)
        else:
            field, setups = "", [setup]
        for each in setups:
            each.check()
        found = [running.simulate(each, failures, time.process_time) for each in setups]
    except FailureInputError as error:
        raise UsageError(str(error)) from error
    if values.picture:
        _draw(Path(values.picture), found[0])
    rows = [outcome.as_json() for outcome in found]
    if text := data(values.output, rows if field else rows[0]):
        print(text)
    elif field:
        print(_compared(field, setups, found))
    else:
        print(_text(found[0]))
    return OK


def _flags(parser: Parser) -> None:
    _failure_flags(parser)
    _job_flags(parser)
    add = parser.add_argument
    about = f"simulate each value of one setting: {', '.join(running.SWEPT)}"
    add("--compare", metavar="NAME=V,V", help=about)
    add("--picture", metavar="FILE.svg", help="draw the (first) simulation")
    add_output(parser, json_flag=True)


def _failure_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--trace", metavar="FILE", help="failures from a file: JSON list of node_id, event_time, event_type")
    add("--mix", metavar="NAME", help=f"published failure statistics: {', '.join(mixes.MIXES)}")
    add("--mtbf-s", type=number, metavar="S", help="random failures: mean time between two in the cluster")
    add("--node-mtbf-s", type=number, metavar="S", help="random failures: mean time between two of one node")
    add("--repair-s", type=number, default=21_600.0, metavar="S", help="random failures: median repair time")
    add(
        "--repair-sigma",
        type=number,
        metavar="X",
        default=1.5,
        help="random failures: sigma of lognormal repair times",
    )
    add(
        "--burst-ratio",
        type=number,
        metavar="X",
        default=0.0,
        help="random failures: share that hits neighbours too, 0-1",
    )
    add(
        "--burst-nodes",
        type=int,
        metavar="N",
        default=8,
        help="random failures: most nodes that one failure hits",
    )
    add(
        "--process-ratio",
        type=number,
        metavar="X",
        default=0.0,
        help="random failures: share that kills a process only",
    )
    add("--seed", type=int, metavar="N", default=1, help="seed of the random failures")


def _job_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--nodes", type=int, metavar="N", required=True, help="nodes of the cluster")
    add("--nproc-per-node", type=int, metavar="N", default=1, help="ranks per node")
    add(
        "--nodes-per-replica",
        type=int,
        metavar="N",
        default=1,
        help="nodes that hold one replica of the model",
    )
    add("--spares", type=int, metavar="N", default=0, help="nodes that wait for a failure")
    add(
        "--nodes-min", type=int, metavar="N", default=0, help="the job waits with fewer nodes; 0: one replica"
    )
    add("--fixed", action="store_true", help="never train on fewer nodes than at the start")
    add("--days", type=number, metavar="X", default=174.0, help="days to simulate")
    add("--recovery-s", type=number, default=21.0, metavar="S", help="duration of a recovery, with detection")
    add(
        "--checkpoint-every-s",
        type=number,
        default=10.0,
        metavar="S",
        help="training time between two copies of state",
    )
    add("--stall-s", type=number, default=0.0, metavar="S", help="how long each copy stops training")
    add("--step-s", type=number, default=1.0, metavar="S", help="duration of one training step")
    add("--restore", choices=("checkpoint", "donor"), default="checkpoint",
        help="continue from the last copy, or from the state of surviving ranks")  # fmt: skip


def _setup(values: argparse.Namespace) -> Setup:
    setup = Setup(
        nodes=values.nodes, days=values.days, costs=split(values.recovery_s), nproc=values.nproc_per_node,
        nodes_per_replica=values.nodes_per_replica, spares=values.spares, nodes_min=values.nodes_min,
        checkpoint_every_s=values.checkpoint_every_s, stall_s=values.stall_s,
        step_s=min(values.step_s, values.checkpoint_every_s), donors=values.restore == "donor",
        fixed=values.fixed,
    )  # fmt: skip
    setup.check()
    return setup


def _failures(values: argparse.Namespace) -> Failures:
    given = [name for name in ("trace", "mix", "mtbf_s", "node_mtbf_s") if getattr(values, name) is not None]
    if len(given) != 1:
        words = " and ".join(f"--{name.replace('_', '-')}" for name in given) or "nothing"
        raise UsageError(f"{words} given: give one of --trace, --mix, --mtbf-s, --node-mtbf-s")
    if values.trace:
        try:
            text = Path(values.trace).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{values.trace} cannot be read: {error}") from error
        return trace.read(text, values.nodes, Path(values.trace).name).within(values.days)
    if values.mix:
        return mixes.from_mix(values.mix, values.nodes, values.days, values.seed)
    mtbf_s = values.mtbf_s if values.mtbf_s is not None else values.node_mtbf_s / values.nodes
    rates = mixes.FailureRates(
        mtbf_s, values.repair_s, values.repair_sigma, values.burst_ratio, values.burst_nodes,
        values.process_ratio,
    )  # fmt: skip
    return mixes.from_rates(rates, values.nodes, values.days, values.seed)


def _draw(path: Path, found: SimulationOutcome) -> None:
    try:
        path.write_text(picture.svg(found))
    except OSError as error:
        raise UsageError(f"--picture {path}: {error.strerror}") from error


def _text(found: SimulationOutcome) -> str:
    whole_s = found.nodes * found.days * 86_400.0
    rows = [("goodput", f"{found.goodput:.4f}", "node-time whose progress was kept")]
    rows += [
        ("ceiling", f"{found.ceiling:.4f}", "node-time that was up: the upper limit of goodput"),
        ("of ceiling", f"{found.goodput / found.ceiling:.4f}", ""),
        ("best fixed", f"{found.fixed.goodput:.4f}", f"a job that always has {found.fixed.nodes} nodes"),
        ("ETTR", f"{found.ettr:.4f}", "time in which training advanced, whatever its size"),
    ]
    if found.formula is not None:
        each = found.formula
        about = f"exact, for one failure every {duration(each.mtbf_s)} and a spare node always available"
        rows.append(("ETTR theory", f"{each.ettr:.4f}", about))
        if each.optimum_s > 0:
            words = f"Young {each.young_s:.0f} s, Daly {each.daly_s:.0f} s, exact {each.optimum_s:.0f} s"
            rows.append(("interval", f"{each.optimum_s:.0f} s", words))
    lost = sorted(found.lost_s.items(), key=lambda item: -item[1])
    losses = [(cause, f"{spent / whole_s:.4%}", CAUSES[cause]) for cause, spent in lost]
    head = (
        f"{found.source}: {found.failures} failures in {found.days:g} days of {found.nodes} nodes\n"
        f"{found.rule}\n{found.incidents} incidents, {found.resizes} planned changes of size, "
        f"{found.events_per_s:,.0f} events/s"
    )
    notes = "".join(f"\nnote: {note}" for note in found.notes)
    return f"{head}{notes}\n\n{plain(('', '', ''), rows)}\n\n{plain(('lost to', 'of all', ''), losses)}"


def _compared(field: str, setups: Sequence[Setup], found: Sequence[SimulationOutcome]) -> str:
    rows = [
        (f"{getattr(setup, field):g}", f"{each.goodput:.4f}", f"{each.goodput - found[0].goodput:+.4f}",
         f"{each.goodput * each.nodes * each.days - found[0].goodput * found[0].nodes * found[0].days:+,.0f}",
         f"{each.ettr:.4f}", f"{each.goodput / each.ceiling:.4f}", str(each.incidents),
         max(each.lost_s, key=lambda cause: each.lost_s[cause], default="-"))
        for setup, each in zip(setups, found, strict=True)
    ]  # fmt: skip
    best = max(range(len(found)), key=lambda index: found[index].goodput)
    heads = (
        field.replace("_", "-"),
        "goodput",
        "gain",
        "node-days",
        "ETTR",
        "of ceiling",
        "incidents",
        "most lost to",
    )
    return f"{plain(heads, rows)}\n\nbest: {heads[0]} {rows[best][0]}"


USAGE = "holdfast simulate --nodes N [flags]"
COMMANDS = {"simulate": CommandSpec(ABOUT, run, _flags, USAGE, EPILOG)}
