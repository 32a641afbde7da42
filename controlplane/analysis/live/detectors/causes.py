"""Say why somebody's own work takes longer: a slow device or host, too little CPU, or more work.

CPU time is that of the main thread. Where it makes up most of the work, it tells the three apart: the CPU
time of more work grows with it; that of a process which is kept from running does not. Where devices compute,
CPU time tells nothing. Tokens or samples, where the script declares them, come first.

Where the kernel's counts are known, waits for a CPU are no part of the work (`cpu_waits.py`;
`detectors/crowding.py` reports them). Who is slow and off the CPU then was not waiting for one: it was
stopped, or waited for something else."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.readings import OWN
from controlplane.core.state.findings import Effort, Recommendation

if TYPE_CHECKING:
    from controlplane.analysis.live.places import Place, Suspect
    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.analysis.robust import Floats

ON_CPU = ("forward", "backward", "optimizer")
"""The phases whose CPU time is measured."""

_MORE, _OFF, _SLOW = "more work", "off CPU", "slow"


@dataclass(frozen=True, slots=True)
class SlowCause:
    """What is the matter with a suspect, in the words of a finding. `actions`: with their effort."""

    kind: str
    subject: str
    subject_work: str
    place: Place
    explanation: str
    actions: tuple[tuple[str, Effort], ...]
    evidence: tuple[tuple[str, float | str], ...] = ()
    confidence: float = 1.0

    def recommendations(self, gain_ratio: float) -> tuple[Recommendation, ...]:
        """The actions, the best first; each would save this share of a step."""
        return tuple(Recommendation(text, gain_ratio, effort) for text, effort in self.actions)

    @staticmethod
    def even_out(gain_ratio: float) -> tuple[Recommendation, ...]:
        """What to do where it is not known who is odd."""
        swap = "Swap the two places (drain one node and let it return): see whether the time goes with it."
        return (Recommendation(swap, gain_ratio, Effort.LOW),)


@dataclass(frozen=True, slots=True)
class _Growth:
    """How a suspect's work has grown against its peers', or where it has none, against what its own was
    before (logarithms; NaN: not known)."""

    own: float
    level: float  # what the suspect is named for: over minutes, maybe; the others are of the newest rows
    cpu: float
    tokens: float
    usual_on_cpu: float  # which share of forward, backward and optimizer usually is CPU time
    phase: str  # in which most of the excess lies; "": the comparison shows none
    phase_share: float
    counted: bool = False  # waits for a CPU are known, and left out

    @property
    def nature(self) -> str:
        """What is the matter, by this alone."""
        return _MORE if self.more_work else _OFF if self.off_cpu and not self.counted else _SLOW

    @property
    def more_work(self) -> bool:
        """Whether it has more to compute."""
        if not math.isnan(self.tokens):
            return self.tokens >= policy.ON_CPU_RATIO * min(self.own, self.level)
        return self.usual_on_cpu >= policy.CPU_SHARE and self.cpu >= policy.ON_CPU_RATIO * self.own

    @property
    def off_cpu(self) -> bool:
        """Whether it is kept from running, in all phases alike."""
        on_cpu = self.usual_on_cpu >= policy.CPU_SHARE
        return (
            on_cpu
            and self.cpu <= policy.OFF_CPU_RATIO * self.own
            and self.phase_share < policy.ONE_PHASE_RATIO
        )

    @property
    def stopped(self) -> bool:
        """Whether it neither ran nor was ready to run for what it takes longer."""
        return self.counted and self.off_cpu


def cause(s: LiveSituation, suspect: Suspect, *, lonely: bool) -> SlowCause:
    """Why this suspect is slow. `lonely`: it has no majority of peers, and is compared with its own past."""
    growth = _growth(s, suspect, lonely=lonely)
    places = dict(suspect.place)
    evidence: tuple[tuple[str, float | str], ...] = ()
    if growth.phase:
        evidence = (("main_phase", growth.phase), ("main_phase_share_ratio", growth.phase_share))
    if not math.isnan(growth.cpu):
        evidence += (("cpu_time_ratio", math.exp(growth.cpu)),)
    if not math.isnan(growth.tokens):
        evidence += (("tokens_ratio", math.exp(growth.tokens)),)
    measured = growth.own >= policy.half(math.exp(suspect.level))  # else CPU time and tokens say nothing
    nature = _voted(s, suspect, growth.nature if measured else _SLOW)
    if (
        nature == _MORE
        and math.isnan(growth.tokens)
        and (places.get("node") or places.get("domain"))
        and len(suspect.ranks) > 1
    ):
        nature = _SLOW  # work is not heavier by chance on just the ranks of one node: its clock is low
    if nature == _MORE:
        return _heavy(suspect, growth, evidence)
    if nature == _OFF:
        return SlowCause(
            "throttled",
            suspect.text,
            "its own work",
            suspect.place,
            f"its CPU time per step is {math.exp(growth.cpu):.2f} times "
            f"{'what it was' if lonely else 'that of its peers'}, so it waits for the CPU",
            (
                (f"Raise the CPU limit of {_where(suspect)}, or move what runs beside it.", Effort.LOW),
                ("Start fewer loader workers and threads per rank than it has cores.", Effort.LOW),
            ),
            evidence,
        )
    kind = "slow_rank" if places.get("rank") is not None else "slow_node"
    kind = "slow_domain" if places.get("domain") else kind
    kind = "slow_replica" if places.get("dp_rank") is not None and kind == "slow_node" else kind
    main = f"{growth.phase_share:.0%} of the excess lies in its {growth.phase} time"
    if not growth.phase:
        main = "no comparison shows in which phase"
    if growth.stopped:
        main = "in that time it neither ran nor waited for a CPU: it was stopped, or waits for something else"
    return SlowCause(
        kind, suspect.text, "its own work", suspect.place, main, _actions(suspect, growth), evidence
    )


def _voted(s: LiveSituation, suspect: Suspect, present: str) -> str:
    """What was the matter with this suspect most often, where the first answer counts double: near a limit,
    the present answer may change each time."""
    votes = s.memory.votes
    if suspect.text not in votes and len(votes) >= policy.VOTES_MAX:
        votes.clear()
    counter = votes.setdefault(suspect.text, Counter())
    counter[present] += 1
    first = next(iter(counter))
    return max(counter, key=lambda each: counter[each] * (2 if each == first else 1))


def _heavy(suspect: Suspect, growth: _Growth, evidence: tuple[tuple[str, float | str], ...]) -> SlowCause:
    """More work: the subject is the work, and no device or node is accused."""
    declared = not math.isnan(growth.tokens)
    measure = (
        f"it gets {math.exp(growth.tokens):.2f} times as many tokens or samples"
        if declared
        else f"its CPU time grows with it ({math.exp(growth.cpu):.2f} times), so it has more to compute, or "
        "its processor is slower"
    )
    place = tuple((name, value) for name, value in suspect.place if name not in ("node", "device", "member"))
    return SlowCause(
        "heavy_work",
        f"work of {suspect.text}",
        f"the work of {suspect.text}",
        place,
        measure,
        (
            ("Give all ranks the same tokens per step: sort or pack sequences by length.", Effort.MEDIUM),
            (
                "Compare what this rank computes with the others: experts, layers, its share of the batch.",
                Effort.LOW,
            ),
        ),
        evidence,
        1.0 if declared else 0.7,
    )


def _where(suspect: Suspect) -> str:
    node = dict(suspect.place).get("node")
    return f"node {node}" if node else suspect.text


def _actions(suspect: Suspect, growth: _Growth) -> tuple[tuple[str, Effort], ...]:
    if growth.phase == "other" and growth.phase_share >= policy.ONE_PHASE_RATIO:
        return (
            (
                "Look at what only this rank does between its phases (logging, evaluation, writing files), "
                "and do it less often or beside the training.",
                Effort.MEDIUM,
            ),
        )
    where = _where(suspect)
    if dict(suspect.place).get("domain"):
        return (
            (
                f"Look at what the nodes of {where} share: power, cooling, switch, and their latest change. "
                "Several nodes do not become slow by chance at once.",
                Effort.MEDIUM,
            ),
            (
                "`holdfast drain` its nodes one by one, so that others take over, if it stays slow.",
                Effort.LOW,
            ),
        )
    if growth.stopped:
        return (
            (
                f"Look on {where} at what stops its processes or has them wait (SIGSTOP, a debugger, a "
                "frozen cgroup, swap, a slow disk or mount): `holdfast stacks` shows where they are.",
                Effort.LOW,
            ),
            (f"`holdfast drain` {where}, so that a spare takes over, if it goes on.", Effort.LOW),
        )
    whole = len(suspect.ranks) > 1
    look = (
        "its CPUs, memory, cooling and power"
        if whole
        else "its clocks, temperature, ECC errors and PCIe link"
    )
    return (
        (
            f"`holdfast drain` {where}, so that a spare takes over, and exchange it if it stays slow.",
            Effort.LOW,
        ),
        (f"Look at {look}, and at other processes on {where}.", Effort.MEDIUM),
    )


def _growth(s: LiveSituation, suspect: Suspect, *, lonely: bool) -> _Growth:
    ranks = suspect.ranks
    lonely = lonely and not np.isnan(s.spent_before["cpu"][ranks]).any()
    usual = s.spent_before if lonely else s.usual_spent
    others = np.setdiff1d(s.judged, ranks) if lonely else ranks[:0]

    def log_ratio(mine: Floats, usual: Floats) -> float:
        grown = _logarithm(mine[ranks], usual[ranks])
        if not np.isfinite(grown).all():
            return math.nan
        common = low_median(_logarithm(mine[others], usual[others]))  # what the whole job has changed by
        return float(np.mean(grown)) - (common if math.isfinite(common) else 0.0)

    core = s.work_s(*ON_CPU)
    core_usual = _before_s(usual) if lonely else s.usual(core)
    excess = {name: float(np.sum(s.spent[name][ranks] - usual[name][ranks])) for name in OWN}
    grown = {name: max(0.0, each) for name, each in excess.items()}
    total = sum(grown.values())
    phase = max(grown, key=lambda name: grown[name]) if total > 0 else ""
    counted = [log_ratio(s.spent[name], usual[name]) for name in ("tokens", "samples")]
    on_cpu = usual["cpu"][ranks] / np.maximum(core_usual[ranks], 1e-9)
    return _Growth(
        log_ratio(core, core_usual),
        suspect.level,
        log_ratio(s.spent["cpu"], usual["cpu"]),
        next((each for each in counted if not math.isnan(each)), math.nan),
        float(np.mean(on_cpu)),
        phase,
        grown[phase] / total if phase else 1.0,
        bool(s.counted[ranks].all()),
    )


def _before_s(usual: dict[str, Floats]) -> Floats:
    """What ranks usually spent per step in the phases that count, without the waits for a CPU (s)."""
    found: Floats = np.sum([usual[name] for name in ON_CPU], axis=0) - np.nan_to_num(usual["queued"])
    return np.maximum(found, 0.0)


def _logarithm(mine: Floats, usual: Floats) -> Floats:
    with np.errstate(all="ignore"):
        found: Floats = np.log(mine / usual)
    return found
