"""List every metric of both daemons, from the code, and make the page that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.daemon.metrics_table import FAMILIES
from controlplane.daemon.telemetry.counters import Spread, Tally
from controlplane.daemon.telemetry.metrics import LOST, Metrics

PAGE = """# Metrics

Made from the code by `python docs/monitoring/build.py`; a test holds it fresh. Base units; the label of a job
is `training_job`, since Prometheus keeps `job` for itself. Counters whose labels are known begin at 0. A
coordinator that does not lead shows no jobs: sum counters over all coordinators, take the maximum of gauges.

Seconds of a job are counted once: `productive_seconds_total` and `lost_seconds_total` add up to the time
since this leader knows it. Time until a failure was noticed, and steps that are done again, count as
productive when they pass; once they are known to be lost, the next productive seconds pay for them, so that
no counter goes down.
`cause` of lost time is the cause of a failure, or one of: {causes}.

## Coordinator

{coordinator}

## Agent

Device figures marked NVML are there where `pynvml` and a driver are; others are the machine's.

{agent}
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One metric, as Prometheus names it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str

    def series(self) -> tuple[str, ...]:
        """The names of its series."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


def coordinator() -> list[Entry]:
    """The coordinator's metrics, in the order in which they are made."""
    entries = []
    registry: Any = Metrics("0").registry  # no public interface gives the labels of empty metrics
    labels = {
        name: each.labels if isinstance(each, Tally | Spread) else each._labelnames
        for each, names in registry._collector_to_names.items()
        for name in names
    }
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        entries.append(Entry(name, family.type, tuple(labels[family.name]), family.documentation))
    return entries


def agent() -> list[Entry]:
    """The agent's metrics."""
    return [
        Entry(
            f"holdfast_{name}_total" if family.kind == "counter" else f"holdfast_{name}",
            family.kind,
            family.labels,
            family.about,
        )
        for name, family in FAMILIES.items()
    ]


def known() -> set[str]:
    """The names of all series."""
    return {name for entry in (*coordinator(), *agent()) for name in entry.series()}


def table(entries: list[Entry]) -> str:
    """These metrics as a table in Markdown."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{entry.name}` | {entry.kind} | {', '.join(entry.labels) or ' '} | {entry.about.rstrip('.')} |"
        for entry in entries
    ]
    return "\n".join(rows)


def page() -> str:
    """The content of docs/metrics.md."""
    causes = ", ".join(f"`{word}`" for word in LOST if word in ("forming", "waiting", "snapshot", "redone"))
    return PAGE.format(causes=causes, coordinator=table(coordinator()), agent=table(agent()))
