"""Replay steps with other durations: when would they have ended if some operations had been faster?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.steps.operations import BEHAVIOURS

if TYPE_CHECKING:
    from controlplane.analysis.steps.graph import Graph
    from controlplane.analysis.steps.records import Floats, Steps


def working_s(steps: Steps, graph: Graph) -> Floats:
    """How long each operation worked, without its waiting: (operation, step, replica), s.

    An operation that meets others works from the moment when the last of them is there."""
    found = steps.end_s - steps.start_s
    for node in graph.nodes:
        if node.meets:
            members = list(node.members)
            there = steps.start_s[members].max(axis=0)
            if node.replicas:
                there = there.max(axis=1, keepdims=True)
            found[members] = np.maximum(0.0, steps.end_s[members] - there)
    return found


def step_s(graph: Graph, durations_s: Floats) -> Floats:
    """How long each step takes with these durations, (operation, step, replica), s: one value per step.

    Workers are never late for a reason that is not recorded: an operation starts once it can."""
    end_s = np.empty_like(durations_s)
    for node in graph.nodes:
        start: Floats | float = 0.0
        for before in node.before:
            for index in before:
                start = np.maximum(start, end_s[index])
        if node.replicas and not isinstance(start, float):
            start = start.max(axis=1, keepdims=True)
        for index in node.members:
            np.add(start, durations_s[index], out=end_s[index])
    found: Floats = end_s.max(axis=(0, 2))
    return found


def ideal_s(steps: Steps, worked_s: Floats) -> Floats:
    """For each operation, how long its kind takes: (operation, 1, 1), s.

    The mean over all workers and steps; the median for transfers (`operations.Behaviour`)."""
    kinds = np.array([operation.kind for operation in steps.operations])
    found = np.empty((len(kinds), 1, 1))
    for kind in np.unique(kinds):
        ours = worked_s[kinds == kind]
        found[kinds == kind] = np.median(ours) if BEHAVIOURS[kind].transfers else ours.mean()
    return found
