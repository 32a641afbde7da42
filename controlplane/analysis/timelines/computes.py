"""Compare computes with those that did the same work: other replicas, and other stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import others_median
from controlplane.analysis.steps.records import TimelineError
from controlplane.analysis.steps.units import Unit, units

if TYPE_CHECKING:
    from controlplane.analysis.steps.records import Floats, Steps

LEAST_S = 1e-9
"""A compute that took less counts as this long (s), so that it has a logarithm."""


@dataclass(frozen=True, slots=True)
class Computes:
    """Logarithms of durations (s) with the axes (stage, unit, step, replica).

    A unit is what all stages do: (kind, model chunk, micro-batch)."""

    units: tuple[Unit, ...]
    log_s: Floats

    def against_replicas(self) -> Floats:
        """The logarithm of the ratio to the same compute of the other replicas. NaN with one replica."""
        return self.log_s - others_median(self.log_s, axis=3)

    def of_worker(self, against_replicas: Floats) -> Floats:
        """What is left of the ratio to other replicas when that of the other stages is taken off.

        A long sequence slows all stages of a replica alike, so nothing of it is left."""
        return against_replicas - others_median(against_replicas, axis=0)

    def against_stages(self) -> Floats:
        """The logarithm of the ratio to the same unit on the other stages. NaN with one stage."""
        return self.log_s - others_median(self.log_s, axis=0)

    def without(self, stage: int, steps: slice, replica: int, log_ratio: float) -> Computes:
        """Return the computes as if this worker had not been slower by `log_ratio` in these steps."""
        log_s = self.log_s.copy()
        log_s[stage, :, steps, replica] -= log_ratio
        return Computes(self.units, log_s)

    def of_micro_batch(self) -> dict[Unit, Floats]:
        """Return how much longer (a logarithm) each unit took than is usual for its kind and chunk.

        The median over all stages, by (step, replica)."""
        found = np.empty_like(self.log_s)
        for kind in sorted({unit[:2] for unit in self.units}):
            ours = [unit[:2] == kind for unit in self.units]
            rows = self.log_s[:, ours]
            found[:, ours] = rows - np.median(rows, axis=(1, 2), keepdims=True)
        common = np.median(found, axis=0)
        return {unit: common[index] for index, unit in enumerate(self.units)}

    def micro_batch_s(self) -> Floats:
        """How long a typical micro-batch takes, forward and backward: (stage, step, replica), s."""
        kinds = [unit[:2] for unit in self.units]
        found = [
            np.exp(np.median(self.log_s[:, [each == kind for each in kinds]], axis=1))
            for kind in sorted(set(kinds))
        ]
        total: Floats = np.sum(found, axis=0)
        return total


def computes(steps: Steps) -> Computes:
    """The computes of all stages, side by side. Raises TimelineError when stages do nothing alike."""
    rows: list[dict[Unit, int]] = [{} for _ in range(steps.stages)]
    for index, unit in units(steps.operations).items():
        rows[steps.operations[index].stage][unit] = index
    alike = tuple(sorted(set.intersection(*map(set, rows))))
    if not alike:
        raise TimelineError(
            "no micro-batch is computed by all stages: number mc and mb_id alike on all stages"
        )
    chosen = np.array([[row[unit] for unit in alike] for row in rows])
    took_s = steps.end_s[chosen] - steps.start_s[chosen]
    return Computes(alike, np.log(np.maximum(took_s, LEAST_S)))
