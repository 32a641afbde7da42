"""Sum up a run in one record, for a table, for JSON and for a picture. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.analysis import goodput, intervals
from controlplane.analysis.goodput import CAUSES, KEPT, Fixed
from controlplane.simulation.failures import spans

if TYPE_CHECKING:
    from controlplane.simulation.world import World


@dataclass(frozen=True, slots=True)
class Formula:
    """What theory says at the failure rate of the run, for failures without memory and no lack of nodes."""

    mtbf_s: float  # mean time between the failures that hit the job (`World.struck`)
    ettr: float  # share of time that is kept training (`analysis.intervals.ettr_exact`)
    young_s: float  # Young's checkpoint interval
    daly_s: float  # Daly's checkpoint interval
    optimum_s: float  # the interval with the greatest `ettr`; 0: copies cost nothing


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """One simulated run. Ratios are from 0 to 1."""

    nodes: int
    days: float
    goodput: float  # share of all node-time whose progress was kept
    ceiling: float  # share of all node-time in which nodes were up
    ettr: float  # share of the simulated time that went into training that was kept, whatever its nodes
    fixed: Fixed  # the best that a job of one size could have made of the same failures
    incidents: int  # closed ones, planned changes left out
    resizes: int  # planned changes of size
    failures: int  # those of nodes that were up
    untouched: int  # failures of nodes that were not in the job
    lost_s: dict[str, float]  # node-seconds by cause
    formula: Formula | None  # None: no failure hit the job
    events: int  # that the core took
    cpu_s: float  # processor time of the run
    notes: tuple[str, ...]  # what was odd in the failures' source
    source: str  # where the failures come from
    rule: str  # which rule decided about the job's size
    bins: tuple[dict[str, float], ...]  # node-seconds by cause in each bin of time
    bin_s: float  # width of a bin

    @property
    def events_per_s(self) -> float:
        """Events that the core took per second of processor time; the time includes the simulation itself."""
        return self.events / self.cpu_s if self.cpu_s > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for programs: ratios from 0 to 1, times in s."""
        found: dict[str, Any] = {
            "goodput": self.goodput, "ettr": self.ettr, "ceiling": self.ceiling,
            "of_ceiling": self.goodput / self.ceiling if self.ceiling else 0.0,
            "best_fixed": {"nodes": self.fixed.nodes, "goodput": self.fixed.goodput},
            "incidents": self.incidents, "resizes": self.resizes, "failures": self.failures,
            "untouched": self.untouched, "lost": self.lost_s, "events": self.events,
            "events_per_s": self.events_per_s, "cpu_s": self.cpu_s, "nodes": self.nodes, "days": self.days,
            "source": self.source, "rule": self.rule, "notes": list(self.notes),
        }  # fmt: skip
        if self.formula is not None:
            found["formula"] = {name: getattr(self.formula, name) for name in Formula.__slots__}
        return found


def of(world: World, cpu_s: float) -> SimulationOutcome:
    """Sum up a run that took `cpu_s` of processor time."""
    setup, ledger = world.setup, world.ledger
    steps = spans(world.failures.outages, world.end_s)
    whole_s = setup.nodes * world.end_s
    resizes = sum(1 for each in world.incidents if each.verdict.cause == "resized")
    return SimulationOutcome(
        nodes=setup.nodes, days=setup.days,
        goodput=ledger.total.get(KEPT, 0.0) / whole_s,
        ceiling=goodput.ceiling(steps, setup.nodes, world.end_s),
        ettr=world.training.kept_s / world.end_s,
        fixed=goodput.best_fixed(
            steps, setup.nodes, world.end_s, setup.nodes_per_replica, setup.costs.total_s
        ),
        incidents=len(world.incidents) - resizes, resizes=resizes,
        failures=world.struck + world.spared, untouched=world.spared,
        lost_s={each: round(ledger.total[each], 3) for each in CAUSES if ledger.total.get(each, 0.0) > 0.5},
        formula=_formula(world), events=world.events, cpu_s=cpu_s, notes=world.failures.notes,
        source=world.failures.source, rule=_rule(world), bins=tuple(ledger.bins), bin_s=ledger.bin_s,
    )  # fmt: skip


def _formula(world: World) -> Formula | None:
    """Return the theory at the rate of the failures that hit the job; None when there was none."""
    setup = world.setup
    if world.struck < 1:
        return None
    mtbf_s, recovery_s = world.end_s / world.struck, setup.costs.total_s
    tau_s = setup.steps_per_checkpoint * setup.step_s
    return Formula(
        mtbf_s,
        intervals.ettr_exact(tau_s, setup.stall_s, mtbf_s, recovery_s),
        intervals.young(setup.stall_s, mtbf_s),
        intervals.daly(setup.stall_s, mtbf_s),
        intervals.optimum(setup.stall_s, mtbf_s, recovery_s),
    )


def _rule(world: World) -> str:
    """Describe the rule by which the core decided about the size of the job."""
    setup = world.setup
    if setup.least == setup.nodes_max:
        return "fixed size: the core moves lost ranks to spare nodes, and parks the job when there are none"
    unit = setup.nodes_per_replica
    of = "replicas of one node" if unit == 1 else f"replicas of {unit} nodes"
    return (
        f"elastic: the core shrinks and grows the job between {setup.least} and {setup.nodes_max} nodes, {of}"
    )
