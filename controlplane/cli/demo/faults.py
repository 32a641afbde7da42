"""Parse which faults the demo must plant, and where: `slow=rank:2,at:40,factor:2`. Pure."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.cli.errors import nearest
from controlplane.cli.local.network_spaces import CABLE_MBIT

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERYBODY = -1
"""The rank of a fault that no rank has alone."""
FACTOR_MAX = 100.0
BEFORE_STEPS = 40
"""Steps before a fault, unless its plan says otherwise."""
NODES_LEAST = 4
"""Fewer nodes have fewer than six links: too few to compare one with others."""
FIELDS = ("rank", "at", "factor", "seed")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What can be planted. `by_script`: the script plays it, or its part; else the demo does all of it to the
    process.

    `factor`: its usual size; 0: it has none. `hangs`: the job stands still until it is judged as hung.
    `stages`: the job of the demo has so many pipeline stages. `of_node`: the rank's whole node has it, by its
    network: each node has one of its own. `shows_after`: steps that have to follow it until it can be told
    from what is usual."""

    about: str
    has_rank: bool = True
    factor: float = 0.0
    by_script: bool = True
    hangs: bool = False
    stages: int = 1
    of_node: bool = False
    shows_after: int = 0


KINDS = {
    "none": FaultKind("nothing", has_rank=False, by_script=False),
    "slow": FaultKind(
        "the process is stopped and continued in turns: its own work takes FACTOR times as long",
        factor=2.0,
        by_script=False,
    ),
    "stuck-loader": FaultKind(
        "the rank waits for its samples until a step has taken FACTOR times as long as usual", factor=2.0
    ),
    "slow-link": FaultKind(
        f"the cable of the rank's node, one of {CABLE_MBIT} Mbit/s, carries FACTOR times less; needs root, "
        "ip and tc",
        factor=8.0,
        by_script=False,
        of_node=True,
    ),
    "leak": FaultKind(
        "the process keeps memory: after 100 steps it has FACTOR times as much", factor=1.5, shows_after=200
    ),
    "imbalance": FaultKind(
        "sequences of uneven length on all ranks: the longest is FACTOR times as long as the shortest",
        has_rank=False,
        factor=4.0,
    ),
    "last-stage": FaultKind(
        "the last of two pipeline stages holds FACTOR times as many layers: the layout is wrong, no rank",
        has_rank=False,
        factor=2.0,
        stages=2,
    ),
    "evaluation": FaultKind(
        "all ranks evaluate the model every 50 steps, which nothing declares", has_rank=False
    ),
    "compile": FaultKind("the model is compiled with torch.compile, in the first steps", has_rank=False),
    "noisy-neighbour": FaultKind(
        "another program computes on the same machine, in bursts", has_rank=False, by_script=False
    ),
    "bitflip": FaultKind("one bit of a parameter or of the optimizer's state flips in the rank's memory"),
    "skipped-collective": FaultKind("the rank leaves out a collective of the step", hangs=True),
    "wrong-shape": FaultKind("the rank enters a collective of the step with another size", hangs=True),
    "nan": FaultKind("the second block's network gives NaN on the rank; such steps are left out"),
}
"""Every kind that can be planted, by its name."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault. `rank`: EVERYBODY where no rank has it alone; `at`: the step with which it begins; 0: not
    given yet; `factor`: how bad, 0 for kinds without one; `seed`: of its chance."""

    kind: str
    rank: int = EVERYBODY
    at: int = 0
    factor: float = 0.0
    seed: int = 0

    @property
    def of(self) -> FaultKind:
        """The row of its kind."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        whom = f" on rank {self.rank}" if self.of.has_rank else ""
        size = f", factor {self.factor:g}" if self.factor else ""
        return f"{self.kind}{whom} from step {self.at}{size}"


def read_fault(text: str) -> PlannedFault:
    """Parse a fault, as an argument type. Raises ArgumentTypeError that names what is possible."""
    name, _, rest = text.partition("=")
    if name not in KINDS:
        hint = nearest(name, KINDS)
        raise argparse.ArgumentTypeError(f"unknown fault {name!r}{hint} Known: {', '.join(KINDS)}")
    values = _values(name, rest)
    kind = KINDS[name]
    if kind.has_rank and "rank" not in values:
        raise argparse.ArgumentTypeError(f"{text!r} has no rank: give one, as in {name}=rank:2")
    factor = values.get("factor", kind.factor)
    if kind.factor and not 1 < factor <= FACTOR_MAX:
        raise argparse.ArgumentTypeError(
            f"{name}: factor {factor:g} is no slowdown, or too much: give more than 1, up to {FACTOR_MAX:g}"
        )
    return PlannedFault(
        name, int(values.get("rank", EVERYBODY)), int(values.get("at", 0)), factor, int(values.get("seed", 0))
    )


def may_show(faults: Sequence[PlannedFault], step: int) -> bool:
    """Whether each fault has had the steps that it needs to show. `step`: that all ranks have completed."""
    return all(step >= each.at + each.of.shows_after for each in faults if each.of.shows_after)


def _values(kind: str, text: str) -> dict[str, float]:
    """The fields of a fault by name. Raises ArgumentTypeError."""
    fits = [
        field
        for field in FIELDS
        if (field != "rank" or KINDS[kind].has_rank) and (field != "factor" or KINDS[kind].factor)
        and (field != "at" or kind != "none")
    ]  # fmt: skip
    found: dict[str, float] = {}
    for part in text.split(",") if text else []:
        field, _, value = part.partition(":")
        if field not in fits:
            raise argparse.ArgumentTypeError(
                f"{kind} has no {field!r}{nearest(field, fits) or ';'} it takes {', '.join(fits)}, as in "
                f"{kind}={','.join(f'{each}:2' for each in fits)}"
            )
        if field in found:
            raise argparse.ArgumentTypeError(f"{kind}: {field} is given twice: give it once")
        found[field] = _number(kind, field, value)
    return found


def _number(kind: str, field: str, text: str) -> float:
    """The value of a field: a whole number from 0, or for a factor any number. Raises ArgumentTypeError."""
    try:
        return float(text) if field == "factor" else float(_whole(text))
    except ValueError as error:
        wanted = "a number" if field == "factor" else "a whole number from 0"
        raise argparse.ArgumentTypeError(f"{kind}: {field} is {text!r}: give {wanted}") from error


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(text)
    return int(text)


def settled(fault: PlannedFault, steps: int) -> PlannedFault:
    """The fault with a step, if none is given: there is a before, for those that are judged by their past."""
    return fault if fault.at else replace(fault, at=max(1, min(BEFORE_STEPS, steps // 3)))


def impossible_fault(faults: Sequence[PlannedFault], steps: int, nodes: int, per_node: int) -> str:
    """Why these faults are impossible in such a run; "" when they are possible."""
    world_size = nodes * per_node
    planted: set[tuple[str, int]] = set()
    for fault in faults:
        if fault.rank >= world_size:
            return f"{fault}: there are only {world_size} ranks, counted from 0"
        if not 1 <= fault.at < steps:
            return (
                f"{fault}: the run has steps 0 to {steps - 1}: give at:1 to at:{steps - 1}, or more --steps"
            )
        if (fault.kind, fault.rank) in planted:
            return f"{fault}: {fault.kind} is planted there already: give it once"
        planted.add((fault.kind, fault.rank))
    for alone in ("none", "last-stage"):
        if len(faults) > 1 and any(fault.kind == alone for fault in faults):
            return f"{alone} is planted together with other faults: drop it, or the others"
    return _unfit_layout(faults, nodes, world_size)


def _unfit_layout(faults: Sequence[PlannedFault], nodes: int, world_size: int) -> str:
    """Why these faults need other nodes or ranks; "" when they do not."""
    if networks_apart(faults) and nodes < NODES_LEAST:
        return (
            f"slow-link: among {nodes} nodes nobody can say whose cable is slow: give --nodes {NODES_LEAST} "
            "or more, or drop --nodes"
        )
    stages = stages_of(faults)
    if world_size % stages:
        return f"{faults[0]}: {stages} stages need a multiple of {stages} ranks, and there are {world_size}"
    return ""


def networks_apart(faults: Sequence[PlannedFault]) -> bool:
    """Whether each node of the demo needs a network of its own."""
    return any(fault.of.of_node for fault in faults)


def stages_of(faults: Sequence[PlannedFault]) -> int:
    """How many pipeline stages the job has."""
    return max((fault.of.stages for fault in faults), default=1)
