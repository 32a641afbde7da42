"""`holdfast check node`: measure this node, and compare it with its peers."""

from __future__ import annotations

import math
import os
import socket
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.analysis import node_check_policy, node_checks
from controlplane.analysis.node_numbers import number_text
from controlplane.cli.check import baselines, measuring
from controlplane.cli.doctor.shown import WIDTH, as_data, as_text
from controlplane.cli.errors import FAILED, OK, UsageError
from controlplane.cli.flags.credentials import access_of, add_access
from controlplane.cli.flags.parser import CommandEntry, CommandSpec, Parser, number
from controlplane.cli.questions.outputs import add_output, data
from controlplane.cli.questions.tables import NOTHING, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controlplane.analysis.node_checks import JudgedReading
    from controlplane.core.state.findings import Finding

SECONDS, SECONDS_MAX = 1.0, 60.0
HEADINGS = ("READING", "VALUE", "PEERS", "JUDGEMENT")
ABOUT = (
    "Measure what this node can do, in about half a minute and with nothing of Holdfast running: products of "
    "matrices on the CPU and on each device, checked for wrong entries, memory bandwidth, the disk, what the "
    "kernel says of its clock, what network cards and the links of devices have negotiated, copies between "
    "devices, and connections to other nodes, with the difference of the clocks and the bandwidth where an "
    "agent answers there. With the answers of at least three other nodes a reading is judged: it is "
    "slow if it is worse than their mean by more than one standard deviation and takes more than a tenth "
    "longer (disks and connections: twice as long). While other processes have the CPUs, nobody is accused. "
    "Do not run it beside training, which it would slow down. Exit code 1 if a part is broken or slow."
)
EPILOG = """examples:
  holdfast check node
  holdfast check node --folder /checkpoints --peer 10.0.0.7:7070
  holdfast check node --node n3 --json > n3.json
  holdfast check node --node n3 --baseline n0.json --baseline n1.json --baseline n2.json"""


def _flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--node", default="", metavar="NAME", help="how to call this node (default: its host name)")
    add("--folder", default=".", metavar="DIR", help="where the disk is measured (default: the current one)")
    add(
        "--seconds",
        type=number,
        default=SECONDS,
        metavar="S",
        help=f"how long each reading is measured (default: {SECONDS:g})",
    )
    add(
        "--peer",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="an address to connect to; for clock and bandwidth, the peer service of another node's agent "
        "(--peer-listen; repeatable)",
    )
    add(
        "--baseline",
        action="append",
        default=[],
        metavar="FILE",
        help="what another node answered to `check node --json` (repeatable)",
    )
    add_output(parser, json_flag=True)
    add_access(parser)


def node(values: argparse.Namespace) -> int:
    """Measure, judge and print. Exit code 1 if a part of the node is broken or slow."""
    name, folder = values.node or socket.gethostname(), Path(values.folder)
    _check(values, folder)
    peers = baselines.read([Path(each) for each in values.baseline], name)
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    own = measuring.measure(folder, values.seconds, values.peer, access_of(values) if values.peer else None)
    judged = node_checks.judge(own, [each.readings for each in peers])
    found = node_checks.findings(name, judged, load)
    print(data(values.output, _data(name, load, judged, found)) or _text(name, load, judged, found))
    return FAILED if found else OK


def _check(values: argparse.Namespace, folder: Path) -> None:
    if not (math.isfinite(values.seconds) and 0.0 < values.seconds <= SECONDS_MAX):
        raise UsageError(f"--seconds {values.seconds:g}: give a number above 0, and {SECONDS_MAX:g} at most")
    if not folder.is_dir():
        raise UsageError(f"--folder {folder} is no folder: give one on the disk to be measured")
    for peer in values.peer:
        host, _, port = peer.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"--peer {peer}: give HOST:PORT")


def _data(
    name: str, load: float, judged: Sequence[JudgedReading], found: Sequence[Finding]
) -> dict[str, Any]:
    """For programs, and for --baseline on other nodes. `load`: of each CPU, before."""
    readings = [
        {
            "name": each.reading.name,
            "value": each.reading.value,
            "unit": each.reading.unit,
            "broken": each.reading.broken,
            "within": each.reading.within,
            "crowded": each.reading.crowded,
            "judgement": each.judgement,
            "why": each.why,
            "peers": each.peers,
            "peers_mean": each.mean,
            "peers_sigma": each.sigma,
        }
        for each in judged
    ]
    findings = [as_data(each) for each in found]
    return {"node": name, "load_per_cpu": round(load, 3), "readings": readings, "findings": findings}


def _text(name: str, load: float, judged: Sequence[JudgedReading], found: Sequence[Finding]) -> str:
    rows = [
        (each.reading.name, number_text(each.reading.value, each.reading.unit), _peers(each), each.judgement)
        for each in judged
    ]
    notes = dict.fromkeys(
        f"not judged: {each.why}" for each in judged if each.judgement == node_checks.NOT_JUDGED
    )
    notes |= dict.fromkeys(
        f"{each.reading.name}: {each.why}" for each in judged if each.judgement == node_checks.NOT_MEASURED
    )
    if load > node_check_policy.LOAD_MAX:
        notes |= {f"the load was {load:.2g} for each CPU before: other processes make readings worse": None}
    told = [textwrap.fill(f"note: {each}", WIDTH, subsequent_indent="  ") for each in notes]
    verdict = as_text(found) if found else f"no part of {name} was found broken or slow"
    return "\n".join([plain(HEADINGS, rows), "", *told, *([""] if told else []), verdict])


def _peers(judged: JudgedReading) -> str:
    if judged.mean is None or judged.sigma is None:
        return NOTHING
    unit = judged.reading.unit
    return f"{number_text(judged.mean, unit)} +- {number_text(judged.sigma, unit)} ({judged.peers})"


def _no_verb(_: argparse.Namespace) -> int:
    raise UsageError("say what to check: `holdfast check node`")


COMMANDS = {
    "check": CommandSpec(
        "Check parts of a cluster before they are used.",
        _no_verb,
        verbs={"node": CommandEntry("check.command", "measure this node, and compare it with its peers")},
    ),
    "node": CommandSpec(ABOUT, node, _flags, epilog=EPILOG),
}
