"""Diagnose a timeline: what slows the job, by how much, and whose doing it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.steps.records import whole_steps
from controlplane.analysis.steps.what_if import WhatIf
from controlplane.analysis.timelines.collectives import slow_collectives
from controlplane.analysis.timelines.computes import computes
from controlplane.analysis.timelines.links import slow_links
from controlplane.analysis.timelines.micro_batches import uneven_micro_batches
from controlplane.analysis.timelines.stages import overfull_stages
from controlplane.analysis.timelines.workers import slow_replicas, slow_workers

if TYPE_CHECKING:
    from controlplane.analysis.steps.records import Timeline
    from controlplane.core.state.findings import Finding


@dataclass(frozen=True, slots=True)
class TimelineDiagnosis:
    """What a recording shows. `slowdown`: T / T_ideal; the shares are those of the worst workers and of the
    last stage (`what_if.py`). Findings come with the most expensive first."""

    slowdown: float
    worker_share: float
    stage_share: float
    step_s: float
    ideal_step_s: float
    steps: int
    steps_left_out: int
    rows_repeated: int
    findings: tuple[Finding, ...]


def diagnose(timeline: Timeline) -> TimelineDiagnosis:
    """Raises TimelineError for records that do not describe the steps of a job."""
    steps = whole_steps(timeline)
    what_if = WhatIf(steps)
    parts, alike = slow_workers(what_if, computes(steps))
    accused = {int(replica) for part in parts for replica in np.flatnonzero(part.mask.any(axis=(0, 1)))}
    parts += slow_replicas(what_if, alike, accused)
    parts += overfull_stages(what_if, alike)
    parts += slow_links(what_if)
    parts += slow_collectives(what_if)
    parts += uneven_micro_batches(what_if, alike, parts)
    parts.sort(key=lambda part: (-part.alone, part.finding.kind, part.finding.subject))
    return TimelineDiagnosis(
        slowdown=what_if.slowdown,
        worker_share=what_if.share(what_if.workers(what_if.worst_workers(what_if.workers_alone()))),
        stage_share=what_if.share(what_if.last_stage()),
        step_s=what_if.step_s,
        ideal_step_s=what_if.ideal_step_s,
        steps=steps.count,
        steps_left_out=steps.left_out,
        rows_repeated=steps.repeated,
        findings=tuple(part.finding for part in parts),
    )
