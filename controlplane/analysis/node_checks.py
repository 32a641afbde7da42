"""Judge the readings of one node against those of its peers. Pure.

A reading is bad if the part is broken, whoever else is; or if it is worse than the peers' mean by more than
SIGMAS standard deviations of the peers and by more than a share of the mean (`SLOWER`). Both are needed:
among equal nodes one sigma is nothing, and among different ones a tenth is nothing. With fewer than
PEERS_LEAST peers a number is told and not judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.node_checks import BROKEN, SLOW, BadPart, NodeJudged
from controlplane.core.state.findings import Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.core.records.node_checks import JudgeNode
    from holdfast.node_check.reading import NodeReading

    _Named = dict[tuple[str, str], NodeReading]

SIGMAS = 1.0
SLOWER = {"disk.": 1.0, "link.": 1.0}
SLOWER_ELSE = 0.10
"""How much more time than the peers' mean a reading may take, as a share of that: a tenth. Disks and
connections may take twice as long: a page cache, a neighbour's write or a switch make healthy ones differ so
much."""
PEERS_LEAST = 3
VALUE_MAX = 1e24
"""More is no number that a node can have."""
CROWDED_MAX = 0.05
"""A reading during which others had more of the CPU than this accuses nobody, and is no peer of others."""
LOAD_MAX = 0.5
"""With more processes than this for each CPU before the check, slowness may be theirs."""
SURE, LIKELY, DOUBTFUL = 1.0, 0.9, 0.5
"""Confidence that the node is to blame: its part computes wrong or fails; it is slower than its peers; the
fault may be that of another process, or of the other end of a connection."""
LINK = "link."
"""How the names of readings begin that take two nodes."""
FINE, JUDGED_BROKEN, JUDGED_SLOW, NOT_JUDGED, NOT_MEASURED = (
    "fine",
    "broken",
    "slow",
    "not judged",
    "not measured",
)


@dataclass(frozen=True, slots=True)
class JudgedReading:
    """A reading with its judgement.

    - `judgement`: one of `fine`, `broken`, `slow`, `not judged`, `not measured`; `why` says why.
    - `mean`, `sigma`: of the peers, in the reading's unit; None without enough of them.
    - `peers`: how many of them have this reading."""

    reading: NodeReading
    judgement: str
    why: str
    peers: int = 0
    mean: float | None = None
    sigma: float | None = None

    @property
    def slower(self) -> float:
        """How much more time it takes than the peers' mean, as a share of that; negative: less."""
        value, mean = self.reading.value, self.mean
        if not value or not mean:
            return 0.0
        return (mean / value if self.reading.higher else value / mean) - 1.0


def judge(own: Sequence[NodeReading], peers: Sequence[Sequence[NodeReading]]) -> tuple[JudgedReading, ...]:
    """Judge each reading of a node. `peers`: the readings of each other node."""
    named = [_named(each) for each in peers]
    return tuple(_one(reading, _values(reading, named)) for reading in own)


def findings(node: str, judged: Sequence[JudgedReading], load: float = 0.0) -> tuple[Finding, ...]:
    """What is wrong with the node, by what was judged. `load`: processes for each CPU before the check."""
    found = (_finding(node, each, load) for each in judged)
    return tuple(each for each in found if each is not None)


def answer(asked: JudgeNode) -> NodeJudged:
    """The answer to the core's question what is wrong with a node."""
    judged = judge(asked.readings, [each.readings for each in asked.peers])
    bad = tuple(
        BadPart(part, each.kind, each.confidence, each.reason)
        for each in findings(asked.node, judged, asked.load)
        for name, part in each.place
        if name == "part" and isinstance(part, str)
    )
    fine = tuple(each.reading.name for each in judged if each.judgement == FINE)
    sound = tuple(each.name for each in asked.readings if _sound(each.value) and not each.broken)
    return NodeJudged(asked.node, asked.round, bad, fine, sound)


def _values(reading: NodeReading, peers: Sequence[_Named]) -> list[float]:
    """What the peers measured of the same thing; no more than one number of each."""
    found = (peer.get((reading.name, reading.unit)) for peer in peers)
    return [each.value for each in found if each is not None and each.value is not None]


def _named(readings: Sequence[NodeReading]) -> _Named:
    """The readings of a peer that can be compared, the first of each name."""
    found: _Named = {}
    for each in readings:
        if _comparable(each):
            found.setdefault((each.name, each.unit), each)
    return found


def _comparable(reading: NodeReading) -> bool:
    return not reading.broken and _sound(reading.value) and reading.crowded <= CROWDED_MAX


def _sound(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and 0.0 < value < VALUE_MAX


def _one(reading: NodeReading, others: Sequence[float]) -> JudgedReading:
    if reading.broken:
        return JudgedReading(reading, JUDGED_BROKEN, reading.broken, len(others))
    if not _sound(reading.value):
        absurd = "" if reading.value is None else f"{reading.value} is no possible reading"
        why = absurd or reading.reason or "nobody says why"
        return JudgedReading(reading, NOT_MEASURED, why, len(others))
    if len(others) < PEERS_LEAST:
        why = f"{len(others)} peers have this reading, {PEERS_LEAST} are needed"
        return JudgedReading(reading, NOT_JUDGED, why, len(others))
    mean = math.fsum(others) / len(others)
    sigma = math.sqrt(math.fsum((each - mean) ** 2 for each in others) / (len(others) - 1))
    judgement, why = _compared(JudgedReading(reading, FINE, "", len(others), mean, sigma), mean, sigma)
    return JudgedReading(reading, judgement, why, len(others), mean, sigma)


def _compared(found: JudgedReading, mean: float, sigma: float) -> tuple[str, str]:
    """The judgement of a sound reading that has enough peers, and why."""
    value = found.reading.value or 0.0
    sigmas = abs(value - mean) / sigma if sigma > 0.0 else math.inf
    if found.slower <= _limit(found.reading.name) or sigmas <= SIGMAS:
        return FINE, ""
    crowded = found.reading.crowded
    if crowded > CROWDED_MAX:
        why = f"other processes had {crowded:.0%} of the CPU time it wanted: check again when idle"
        return NOT_JUDGED, why
    apart = f"{sigmas:.1f} sigma" if math.isfinite(sigmas) else "all of them are equal"
    return JUDGED_SLOW, f"{found.slower:.0%} slower than the mean of {found.peers} peers ({apart})"


def _limit(name: str) -> float:
    return next((limit for part, limit in SLOWER.items() if name.startswith(part)), SLOWER_ELSE)


_ADVICE: Mapping[str, str] = {
    "gemm": "look at clocks, temperature, power limit and other users of the device; check again when idle",
    "memory": "look at the memory's slots, errors (EDAC, ECC) and at other processes; check again when idle",
    "disk": "look at its health (SMART), space and other writers; put checkpoints on another one until then",
    "link": "check from the other node too, and from a third one: that tells whose end it is",
}


def _finding(node: str, judged: JudgedReading, load: float) -> Finding | None:
    if judged.judgement not in (JUDGED_BROKEN, JUDGED_SLOW):
        return None
    reading, broken = judged.reading, judged.judgement == JUDGED_BROKEN
    evidence: list[tuple[str, float | str]] = [("reading", reading.name), ("unit", reading.unit)]
    if reading.value is not None and judged.mean is not None and judged.sigma is not None:
        evidence += [("value", reading.value), ("peers_mean", judged.mean), ("peers_sigma", judged.sigma)]
    sureness = _sureness(reading, load, broken=broken)
    return Finding(
        kind=BROKEN if broken else SLOW,
        level=Level.CRITICAL if sureness == SURE else Level.DEGRADED,
        subject=f"{node}: {reading.name}",
        reason=f"{reading.name}: {judged.why}",
        place=(("node", node), ("part", reading.name)),
        confidence=sureness,
        evidence=(*evidence, ("peers_count", float(judged.peers)), ("load_per_cpu", load)),
        recommendations=(Recommendation(_advice(reading, sureness)),),
    )


def _sureness(reading: NodeReading, load: float, *, broken: bool) -> float:
    if reading.name.startswith(LINK):
        return DOUBTFUL
    if broken:
        return SURE
    return DOUBTFUL if load > LOAD_MAX else LIKELY


def _advice(reading: NodeReading, sureness: float) -> str:
    of_part = next((text for part, text in _ADVICE.items() if part in reading.name), "look at this part")
    if sureness == SURE:
        return f"cordon the node; {of_part}"
    if sureness == LIKELY:
        return f"give the node no ranks before this is understood; {of_part}"
    return of_part
