"""Judge the readings of one node against those of its peers. Pure.

A reading is bad if the part is broken, whoever else is; or if it is worse than the peers' mean by more than
SIGMAS standard deviations of the peers and by more than a share of the mean (`policy.SLOWER`). Both are
needed: among equal nodes one sigma is nothing, and among different ones a tenth is nothing. With fewer than
PEERS_LEAST peers a number is told and not judged. Two kinds of readings are judged in another way: how far a
clock is off (a limit, and no peers), and a link that is down (peers that have it up)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.analysis import node_check_policy as policy
from controlplane.analysis.node_numbers import number_text
from controlplane.core.records.node_checks import BROKEN, SLOW, BadPart, NodeJudged
from controlplane.core.state.findings import Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.node_checks import JudgeNode
    from holdfast.node_check.reading import NodeReading

    _Named = dict[tuple[str, str], NodeReading]

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
    - `peers`: how many of them have this reading.
    - `sureness`: how sure it is that the node is to blame; None: as it is for readings of its kind."""

    reading: NodeReading
    judgement: str
    why: str
    peers: int = 0
    mean: float | None = None
    sigma: float | None = None
    sureness: float | None = None

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
    sound = tuple(each.reading.name for each in judged if _is_in_order(each))
    return NodeJudged(asked.node, asked.round, bad, fine, sound)


def _is_in_order(judged: JudgedReading) -> bool:
    """Whether this speaks against a part being broken: it works, as a number that it has shows."""
    if judged.judgement == FINE:
        return True
    reading = judged.reading
    return _sound(reading.value) and not reading.broken and not policy.is_offset(reading.name)


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
    if reading.broken:
        return False
    if policy.is_offset(reading.name):
        return _possible_offset(reading)
    calm = policy.is_stated(reading.name) or reading.crowded <= policy.crowded_max(reading.name)
    return calm and _sound(reading.value)


def _sound(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and 0.0 < value < policy.VALUE_MAX


def _one(reading: NodeReading, others: Sequence[float]) -> JudgedReading:
    known = _known_at_once(reading, others)
    if known is not None:
        return known
    if not _sound(reading.value):
        absurd = "" if reading.value is None else f"{reading.value} is no possible reading"
        why = absurd or reading.reason or "nobody says why"
        return JudgedReading(reading, NOT_MEASURED, why, len(others))
    if len(others) < policy.PEERS_LEAST:
        return JudgedReading(reading, NOT_JUDGED, _too_few(len(others)), len(others))
    mean = math.fsum(others) / len(others)
    sigma = math.sqrt(math.fsum((each - mean) ** 2 for each in others) / (len(others) - 1))
    found = JudgedReading(reading, FINE, "", len(others), mean, sigma)
    judgement, why = _compared(found, mean, sigma)
    return replace(found, judgement=judgement, why=why)


def _known_at_once(reading: NodeReading, others: Sequence[float]) -> JudgedReading | None:
    """The judgement of a reading that is not compared with a mean; None: it is."""
    if reading.broken:
        return JudgedReading(reading, JUDGED_BROKEN, reading.broken, len(others))
    if policy.is_offset(reading.name) and reading.value is not None:
        return _offset(reading, others)
    if reading.value == 0.0 and reading.unit in policy.COUNTS:
        return JudgedReading(reading, FINE, "", len(others))
    if reading.value == 0.0 and reading.higher and policy.is_stated(reading.name):
        return _down(reading, len(others))
    return None


def _too_few(peers: int) -> str:
    return f"{peers} peers have this reading, {policy.PEERS_LEAST} are needed"


def _down(reading: NodeReading, peers: int) -> JudgedReading:
    """Judge a link that is down: it may never have been plugged in, unless it is up on all the peers."""
    why = reading.reason or "it is down"
    if peers < policy.PEERS_LEAST:
        return JudgedReading(reading, NOT_JUDGED, f"{reading.name}: {why}; {_too_few(peers)}", peers)
    return JudgedReading(
        reading, JUDGED_BROKEN, f"{why}, and on {peers} peers it is up", peers, sureness=policy.LIKELY
    )


def _compared(found: JudgedReading, mean: float, sigma: float) -> tuple[str, str]:
    """The judgement of a sound reading that has enough peers, and why."""
    value, name, unit = found.reading.value or 0.0, found.reading.name, found.reading.unit
    sigmas = abs(value - mean) / sigma if sigma > 0.0 else math.inf
    limit = policy.of_name(policy.SLOWER, name, policy.SLOWER_ELSE)
    if (
        found.slower <= limit
        or sigmas <= policy.SIGMAS
        or value <= policy.of_name(policy.FINE_UP_TO, name, 0.0)
    ):
        return FINE, ""
    apart = f"{sigmas:.1f} sigma" if math.isfinite(sigmas) else "all of them are equal"
    if policy.is_stated(name):
        less = (
            f"{number_text(value, unit)}, where the mean of {found.peers} peers is {number_text(mean, unit)}"
        )
        return JUDGED_SLOW, f"{less} ({apart})"
    crowded = found.reading.crowded
    if crowded > policy.crowded_max(name):
        why = f"other processes had {crowded:.0%} of the CPU time it wanted: check again when idle"
        return NOT_JUDGED, why
    return JUDGED_SLOW, f"{found.slower:.0%} slower than the mean of {found.peers} peers ({apart})"


# ------------------------------------------------------------------ how far a clock is off


def _possible_offset(reading: NodeReading) -> bool:
    value, within = reading.value, reading.within
    if value is None or not (math.isfinite(value) and math.isfinite(within)):
        return False
    return abs(value) < policy.CLOCK_OFFSET_POSSIBLE_S and within >= 0.0


def _offset(reading: NodeReading, others: Sequence[float]) -> JudgedReading:
    """Judge how far a clock is off: by a limit, less what its exchange leaves open. Peers tell whose clock it
    is: they were compared with the same one."""
    value, limit = reading.value or 0.0, policy.CLOCK_OFFSET_MAX_S
    if not _possible_offset(reading):
        why = f"{value:g} s within {reading.within:g} s is no possible reading"
        return JudgedReading(reading, NOT_MEASURED, why, len(others))
    other = reading.name.partition(":")[2] or "the coordinator"
    way = "ahead of" if value > 0.0 else "behind"
    within = number_text(reading.within, "s")
    told = f"this node's clock is {number_text(abs(value), 's')} {way} that of {other}, within {within}"
    if abs(value) - reading.within <= limit:
        if abs(value) + reading.within <= limit:
            return JudgedReading(reading, FINE, "", len(others))
        why = f"{reading.name}: {told}: the way takes too long to tell"
        return JudgedReading(reading, NOT_JUDGED, why, len(others))
    told += f": {number_text(limit, 's')} is the most"
    alike = sum(abs(each - value) <= limit for each in others)
    right = sum(abs(each) <= limit for each in others)
    if 2 * alike > len(others):
        told += f"; {alike} of {len(others)} peers have the same: look at the clock of {other}"
    elif right >= policy.PEERS_LEAST and 2 * right > len(others):
        told += f"; {right} of {len(others)} peers agree with that one"
        return JudgedReading(reading, JUDGED_BROKEN, told, len(others), sureness=policy.CLOCK_LIKELY)
    return JudgedReading(reading, JUDGED_BROKEN, told, len(others), sureness=policy.DOUBTFUL)


# ------------------------------------------------------------------ what is told


def _finding(node: str, judged: JudgedReading, load: float) -> Finding | None:
    if judged.judgement not in (JUDGED_BROKEN, JUDGED_SLOW):
        return None
    reading, broken = judged.reading, judged.judgement == JUDGED_BROKEN
    evidence: list[tuple[str, float | str]] = [("reading", reading.name), ("unit", reading.unit)]
    if reading.value is not None and judged.mean is not None and judged.sigma is not None:
        evidence += [("value", reading.value), ("peers_mean", judged.mean), ("peers_sigma", judged.sigma)]
    elif reading.value is not None and policy.is_offset(reading.name):
        evidence += [("value", reading.value), ("within", reading.within)]
    sureness = _sureness(judged, load, broken=broken)
    return Finding(
        kind=BROKEN if broken else SLOW,
        level=Level.CRITICAL if sureness == policy.SURE else Level.DEGRADED,
        subject=f"{node}: {reading.name}",
        reason=f"{reading.name}: {judged.why}",
        place=(("node", node), ("part", reading.name)),
        confidence=sureness,
        evidence=(*evidence, ("peers_count", float(judged.peers)), ("load_per_cpu", load)),
        recommendations=(Recommendation(_advice(reading, sureness)),),
    )


def _sureness(judged: JudgedReading, load: float, *, broken: bool) -> float:
    name = judged.reading.name
    if judged.sureness is not None:
        return judged.sureness
    if name.startswith(policy.TWO_ENDS):
        return policy.DOUBTFUL
    if policy.is_stated(name):
        return policy.CLOCK_LIKELY if name.startswith("clock.") else policy.LIKELY
    if broken:
        return policy.SURE
    return policy.DOUBTFUL if load > policy.LOAD_MAX else policy.LIKELY


def _advice(reading: NodeReading, sureness: float) -> str:
    of_part = next(
        (text for part, text in policy.ADVICE.items() if part in reading.name), "look at this part"
    )
    if sureness == policy.SURE:
        return f"cordon the node; {of_part}"
    if sureness == policy.LIKELY:
        return f"give the node no ranks before this is understood; {of_part}"
    return of_part
