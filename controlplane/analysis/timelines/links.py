"""Find slow links: transfers that take long although both sides are there."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import often, others_median
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.operations import GATHER, SCATTER
from controlplane.analysis.timelines.subjects import Charge, Part, Subject, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.timelines.graph import Link
    from controlplane.analysis.timelines.records import Floats
    from controlplane.analysis.timelines.what_if import Mask, WhatIf

LEAST_S = 1e-6
"""What is shorter is taken for this long: clocks of two hosts do not agree to the microsecond."""
_ADVICE = "Look at error counters of the ports, cables and switches between the two, and at the NIC of each."
_COLLECTIVE = (
    "Look at the NICs and switches of this stage's hosts; if the stage only holds more weights, ignore it."
)


def slow_links(what_if: WhatIf) -> Iterator[Part]:
    """Links between two stages of one replica; with one replica, against the links of other stages.

    When all links of a worker are slow, the worker's network is named rather than each link."""
    both: defaultdict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in what_if.graph.links:
        both[min(link.source, link.target), max(link.source, link.target)].append(link)
    if not both:
        return
    ends = sorted(both)
    took = np.array([_slower_way(what_if, both[each]) for each in ends])  # (link, step, replica)
    replicas = took.shape[2]
    ratio = took - others_median(took, axis=2 if replicas > 1 else 0)
    slow = ratio > math.log(policy.LINK_RATIO)
    found = {
        (ends[link], int(replica)): slow[link, :, replica]
        for link, replica in np.argwhere(slow.mean(axis=1) >= policy.STAGE_STEPS_RATIO)
    }
    for (stages, replica), steps in found.items():
        times = math.exp(float(np.median(ratio[ends.index(stages), :, replica])))
        peers = "other replicas" if replicas > 1 else "other stages"
        charge = Charge(
            "slow_link",
            _ends(what_if, stages, replica, {each for each, other in found if other == replica}),
            _mask(what_if, both[stages], replica),
            f"transfers between stage {stages[0]} and stage {stages[1]} take {times:.1f} times as long as "
            f"those of {peers}, from when both sides are there",
            often(int(steps.sum()), len(steps)) * (1.0 if replicas > 1 else policy.UNCERTAIN),
            (
                ("transfer_ratio", times),
                ("first_stage", float(stages[0])),
                ("second_stage", float(stages[1])),
            ),
            _ADVICE,
        )
        if part := charge.part(what_if):
            yield part


def _ends(what_if: WhatIf, stages: tuple[int, int], replica: int, slow: set[tuple[int, int]]) -> Subject:
    """The worker that all slow links of a replica share, when there are two or more; else the link."""
    shared = set.intersection(*map(set, slow)) if len(slow) > 1 else set()
    if len(shared) == 1:
        return named(what_if.steps, stage=shared.pop(), replica=replica)
    link = named(what_if.steps, replica=replica)
    first, second = (int(what_if.steps.ranks[stage, replica]) for stage in stages)
    place = (("dp_rank", what_if.steps.dp_ranks[replica]), ("stage", stages[0]), ("rank", None))
    return Subject(f"{link.text}, link of rank {first} and rank {second}", place)


def _slower_way(what_if: WhatIf, links: list[Link]) -> Floats:
    """The logarithm of a typical transfer (s) in the slower of the two directions: (step, replica).

    A transfer lasts from when both sides are there until the first of them has gone on: the other one's end
    may wait for more, where a library starts several transfers at once."""
    ways = []
    for link in links:
        end_s = what_if.steps.end_s[np.array(link.pairs)].min(axis=1)
        start_s = what_if.steps.start_s[np.array(link.pairs)].max(axis=1)
        ways.append(np.median(np.log(np.maximum(end_s - start_s, LEAST_S)), axis=0))
    found: Floats = np.max(ways, axis=0)
    return found


def _mask(what_if: WhatIf, links: list[Link], replica: int) -> Mask:
    found = np.zeros((len(what_if.stage), 1, what_if.worked_s.shape[2]), dtype=bool)
    found[[index for link in links for pair in link.pairs for index in pair], 0, replica] = True
    return found


def slow_collectives(what_if: WhatIf) -> Iterator[Part]:
    """Stages whose parameters and gradients both travel far longer than those of other stages."""
    kinds = np.array([operation.kind for operation in what_if.steps.operations])
    stages = range(what_if.steps.stages)
    if len(stages) < 3:
        return
    ratios = []
    for kind in (GATHER, SCATTER):
        chosen = [(kinds == kind) & (what_if.stage == stage) for stage in stages]
        if not all(mask.any() for mask in chosen):
            return
        took_s = np.array([what_if.worked_s[mask].min(axis=2).sum(axis=0) for mask in chosen])
        log_s = np.log(np.maximum(took_s, LEAST_S))
        ratios.append(log_s - others_median(log_s, axis=0))
    ratio = np.min(ratios, axis=0)  # (stage, step)
    slow = ratio > math.log(policy.COLLECTIVE_RATIO)
    for stage in np.flatnonzero(slow.mean(axis=1) >= policy.STAGE_STEPS_RATIO):
        times = math.exp(float(np.median(ratio[stage])))
        charge = Charge(
            "slow_link",
            named(what_if.steps, stage=int(stage)),
            (np.isin(kinds, (GATHER, SCATTER)) & (what_if.stage == stage))[:, None, None],
            f"its collectives between replicas take {times:.1f} times as long as those of other stages, from "
            "when all are there",
            often(int(slow[stage].sum()), slow.shape[1]) * policy.UNCERTAIN,
            (("transfer_ratio", times),),
            _COLLECTIVE,
        )
        if part := charge.part(what_if):
            yield part
