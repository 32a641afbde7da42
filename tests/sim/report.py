"""Sum up how schedules ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Outcome:
    """How one schedule ended. `error` is "" when all promises held."""

    seed: int
    digest: str
    virtual_s: float
    events: int
    forms: int
    error: str = ""
    nodes: int = 0
    struck: dict[str, int] = field(default_factory=dict)  # number of faults, by name
    tiers: dict[str, int] = field(default_factory=dict)  # number of states, by the tier they came from
    parked: int = 0  # how often the job was found waiting for a node that nobody brought back


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Figures over all of them."""
    struck: Counter[str] = Counter()
    tiers: Counter[str] = Counter()
    for outcome in outcomes:
        struck.update(outcome.struck)
        tiers.update({str(tier): times for tier, times in outcome.tiers.items()})
    return {
        "schedules": len(outcomes),
        "failed": sum(bool(outcome.error) for outcome in outcomes),
        "events": sum(outcome.events for outcome in outcomes),
        "virtual_hours": round(sum(outcome.virtual_s for outcome in outcomes) / 3600, 1),
        "generations": sum(outcome.forms for outcome in outcomes),
        "parked": sum(outcome.parked for outcome in outcomes),
        "sizes": dict(sorted(Counter(str(outcome.nodes) for outcome in outcomes).items())),
        "faults": dict(sorted(struck.items())),
        "restored_from": dict(sorted(tiers.items())),
    }


def found(outcomes: Iterable[Outcome], most: int) -> dict[str, object]:
    """How many schedules it took until one failed."""
    for count, outcome in enumerate(outcomes, 1):
        if outcome.error:
            return {"found": True, "schedules": count, "seed": outcome.seed, "error": outcome.error}
    return {"found": False, "schedules": most}
