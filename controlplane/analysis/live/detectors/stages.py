"""Find pipeline stages that hold too much: their ranks work longer than other stages', in all replicas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import median_of_rows
from controlplane.analysis.robust import often, others_median
from controlplane.core.state.findings import Effort, Finding, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.analysis.live.resources.memory import TypicalRow
    from controlplane.analysis.live.situation import LiveSituation


def overfull_stages(s: LiveSituation) -> Iterator[Finding]:
    """Stages whose typical rank works longer than that of the other stages.

    A slow rank in a stage without other replicas looks the same, so a stage of which a rank is named is left
    out, and one whose work has grown since the beginning too: what a stage holds does not change."""
    rows = list(s.memory.jobs)[-policy.STAGE_ROWS :]
    if (
        len(s.seats.stages) < 2
        or len(rows) < policy.STAGE_ROWS
        or len({len(row.stages_s) for row in rows}) > 1
    ):
        return
    ratio = _ratios(rows)
    known = ~np.isnan(ratio)  # in some windows a stage may have told nothing
    level, _ = median_of_rows(ratio)
    with np.errstate(invalid="ignore"):
        above = ratio > policy.half(policy.OVERFULL_RATIO)
    accused = {dict(each.place).get("stage") for each in s.found if dict(each.place).get("rank") is not None}
    for index, (stage, ranks) in enumerate(s.seats.stages):
        rows_known = int(known[:, index].sum())
        lasting = above[:, index].sum() >= policy.SUSTAINED_RATIO * rows_known
        if (
            rows_known < policy.STAGE_ROWS_KNOWN
            or not lasting
            or level[index] < math.log(policy.OVERFULL_RATIO)
            or stage in accused
        ):
            continue
        if not _everywhere(s, ranks, float(level[index])) or not _always(s, index, float(level[index])):
            continue
        yield from _finding(s, index, float(level[index]), int(above[:, index].sum()))


def silent_stages(s: LiveSituation) -> frozenset[int]:
    """The stages of which too few of the newest rows tell something to judge them: nothing is over there."""
    rows, every = list(s.memory.jobs)[-policy.STAGE_ROWS :], [stage for stage, _ in s.seats.stages]
    if len(every) < 2:
        return frozenset()
    if len(rows) < policy.STAGE_ROWS or {len(row.stages_s) for row in rows} != {len(every)}:
        return frozenset(every)
    known = (~np.isnan(_ratios(rows))).sum(axis=0)
    return frozenset(
        stage for stage, count in zip(every, known, strict=True) if count < policy.STAGE_ROWS_KNOWN
    )


def _ratios(rows: Sequence[TypicalRow]) -> Any:
    """How each stage's typical rank works against that of the others, a logarithm: (row, stage)."""
    log_s = np.log(np.maximum(np.array([row.stages_s for row in rows]), 1e-9))
    return log_s - others_median(log_s, axis=1)


def _always(s: LiveSituation, index: int, level: float) -> bool:
    """Whether the stage was longer than others in the first rows that are remembered, too."""
    first = list(s.memory.jobs)[: policy.STAGE_ROWS]
    if {len(row.stages_s) for row in first} != {len(s.seats.stages)}:
        return True  # stages of which somebody was not judged then: it is not known
    return not float(np.nanmedian(_ratios(first)[:, index])) <= 0.5 * level


def _everywhere(s: LiveSituation, ranks: np.ndarray, level: float) -> bool:
    """Whether nearly all ranks of the stage work longer than other stages', and did from the beginning."""
    against = s.against_peers.level[ranks]
    known = against[~np.isnan(against)]
    longer = (known + level > policy.half(policy.OVERFULL_RATIO)).mean() if known.size else 0.0
    grown = s.against_itself.level[ranks]
    grown = grown[~np.isnan(grown)]
    return bool(longer >= policy.REPLICA_RATIO) and not (grown.size and float(np.median(grown)) > 0.5 * level)


def _finding(s: LiveSituation, index: int, level: float, rows: int) -> Iterator[Finding]:
    stage, ranks = s.seats.stages[index]
    own_s = next(row.stages_s[index] for row in reversed(s.memory.jobs) if row.stages_s[index] > 0.0)
    excess_s = own_s * (1.0 - math.exp(-level))
    cost = s.step_s / max(s.step_s - excess_s, 0.1 * s.step_s)
    if cost < policy.COST_RATIO:
        return
    last = index == len(s.seats.stages) - 1
    gain = 1.0 - 1.0 / cost
    replicas = len(np.unique(s.seats.dp_rank[ranks]))
    more = "it holds the output layer and the loss too" if last else "it holds more or costlier layers"
    layers = Recommendation(
        f"Move layers from stage {stage} to the others: it does {math.exp(level):.2f} times their work.",
        gain,
        Effort.MEDIUM,
    )
    yield Finding(
        "overfull_last_stage" if last else "overfull_stage",
        policy.level(math.exp(level), cost, s.thresholds),
        f"stage {stage}",
        f"its ranks work {math.exp(level):.2f} times as long as those of other stages, in "
        f"{'its only replica' if replicas == 1 else f'all {replicas} replicas'}: {more}; this alone makes a "
        f"step {cost:.2f} times as long",
        place=(("node", None), ("rank", None), ("stage", stage)),
        confidence=often(rows, policy.STAGE_ROWS) * (policy.UNCERTAIN if replicas == 1 else 1.0),
        evidence=(
            ("own_ratio", math.exp(level)),
            ("excess_s_per_step", excess_s),
            ("slowdown_alone_ratio", cost),
            ("replicas_count", float(replicas)),
        ),
        recommendations=(
            layers,
            Recommendation(
                "Plan the layout again (`holdfast plan`) with this stage's cost.", gain, Effort.MEDIUM
            ),
        ),
        first_step=s.memory.jobs[0].first_step if len(s.memory.jobs) < policy.JOB_ROWS else None,
    )
