"""List every metric of both daemons, from the code, and make the page that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.daemon.metrics_table import FAMILIES, READINGS
from controlplane.daemon.telemetry.counters import FastCounter, FastHistogram
from controlplane.daemon.telemetry.metrics import LOST, Metrics
from controlplane.daemon.telemetry.zeroed import Zeroed

PAGE = """# Metrics

`python docs/monitoring/build.py` makes this page from the code, and a test checks that it is fresh.

- Units are base units (seconds, bytes). The label of a job is `training_job`, because Prometheus uses `job`.
- Counters with known labels begin at 0. A coordinator that does not lead shows no jobs: sum counters over all
  coordinators, and take the maximum of gauges.
- Each second of a job is counted once: `productive_seconds_total` and `lost_seconds_total` together are the
  time since this leader knows the job, except the time in which it is paused, leaving or over. Of productive
  time, `unknown_seconds_total` is the part in which nobody saw whether steps were made (scripts that do not
  use the SDK). `goodput_ratio` counts it as time that was not productive, has no series while it is most
  of the time, and goes over all lives of the job and all leaders. Time until a failure was noticed, and steps
  that are run again, count as productive when they pass. When they are known
  to be lost, they are added to the lost seconds, and as many of the next productive seconds are not counted,
  so that no counter goes down.
- `cause` of lost time is the cause of a failure, or one of: {causes}.

## Coordinator

{coordinator}

## Agent

Device figures marked NVML need `pynvml` (the package nvidia-ml-py) and a driver; the others are those of the
machine. What a device, its driver or the kernel does not tell is absent.

{agent}

`holdfast_device_reading` has these figures:

{readings}
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
        name: each.labels if isinstance(each, FastCounter | FastHistogram | Zeroed) else each._labelnames
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


def about_jobs() -> set[str]:
    """The names of the series that have the label of a job."""
    entries = (entry for entry in (*coordinator(), *agent()) if "training_job" in entry.labels)
    return {name for entry in entries for name in entry.series()}


def table(entries: list[Entry]) -> str:
    """These metrics as a table in Markdown."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{entry.name}` | {entry.kind} | {', '.join(entry.labels) or ' '} | {entry.about.rstrip('.')} |"
        for entry in entries
    ]
    return "\n".join(rows)


def readings() -> str:
    """The figures that have no metric of their own, as a table in Markdown."""
    rows = ["| figure | device | meaning |", "|---|---|---|"]
    rows += [f"| `{each}` | {device} | {about} |" for each, (device, about) in READINGS.items()]
    return "\n".join(rows)


def page() -> str:
    """The content of docs/metrics.md."""
    causes = ", ".join(f"`{word}`" for word in LOST if word in ("forming", "waiting", "snapshot", "redone"))
    return PAGE.format(
        causes=causes, coordinator=table(coordinator()), agent=table(agent()), readings=readings()
    )
