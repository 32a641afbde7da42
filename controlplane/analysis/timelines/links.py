"""Find slow links: transfers that take long although both sides are there."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import low_median, often, others_median
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.subjects import Charge, Part, Subject, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from controlplane.analysis.steps.graph import Link
    from controlplane.analysis.steps.records import Floats
    from controlplane.analysis.steps.what_if import Mask, WhatIf

LEAST_S = 1e-6
"""A transfer that seems shorter counts as this long (s): clocks of two hosts differ by more than that."""
_ADVICE = "Look at error counters of the ports, cables and switches between the two, and at the NIC of each."


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """The links of a job, both directions together, with their typical transfers."""

    stages: tuple[tuple[int, int], ...]
    directions: tuple[tuple[Link, ...], ...]
    log_s: Floats  # (link, step, replica)


def slow_links(what_if: WhatIf) -> Iterator[Part]:
    """Links whose transfers last long from when both sides are there."""
    both: defaultdict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in what_if.graph.links:
        both[min(link.source, link.target), max(link.source, link.target)].append(link)
    if not both:
        return
    stages = tuple(sorted(both))
    directions = tuple(tuple(both[each]) for each in stages)
    links = LinkTimes(stages, directions, np.array([_slower_way(what_if, each) for each in directions]))
    yield from _of_replicas(what_if, links)
    yield from _of_all_replicas(what_if, links)


def _of_replicas(what_if: WhatIf, links: LinkTimes) -> Iterator[Part]:
    """Links of single replicas, against the same link of the others.

    When a replica has several slow links and all of them end at one worker, the findings name that worker."""
    ratio = links.log_s - others_median(links.log_s, axis=2)
    slow = ratio > math.log(policy.LINK_RATIO)  # nowhere with one replica: NaN
    found = np.argwhere(slow.mean(axis=1) >= policy.STAGE_STEPS_RATIO)
    for link, replica in found:
        ours = {links.stages[each] for each, other in found if other == replica}
        charge = _charge(
            links.stages[link],
            _ends(what_if, links.stages[link], int(replica), ours),
            _mask(what_if, links.directions[link], int(replica)),
            (ratio[link, :, replica], slow[link, :, replica]),
            "other replicas",
        )
        if part := charge.part(what_if):
            yield part


def _of_all_replicas(what_if: WhatIf, links: LinkTimes) -> Iterator[Part]:
    """Links between the same stages of every replica, against other stages'. Some of these may lie inside a
    node and others not, so the ratio has to be far greater."""
    typical = low_median(links.log_s, axis=2)
    ratio = typical - others_median(typical, axis=0)
    slow = ratio > math.log(policy.COLLECTIVE_RATIO)
    for link in map(int, np.flatnonzero(slow.mean(axis=1) >= policy.STAGE_STEPS_RATIO)):
        stages = links.stages[link]
        masks = [_mask(what_if, links.directions[link], each) for each in range(links.log_s.shape[2])]
        where = named(what_if.steps, stage=stages[0])
        subject = Subject(f"links of stage {stages[0]} and stage {stages[1]}", where.place)
        mask: Mask = np.any(masks, axis=0)
        charge = _charge(
            stages, subject, mask, (ratio[link], slow[link]), "other stages", certainty=policy.UNCERTAIN
        )
        if part := charge.part(what_if):
            yield part


def _charge(
    stages: tuple[int, int],
    subject: Subject,
    mask: Mask,
    by_step: tuple[Floats, NDArray[np.bool_]],
    peers: str,
    *,
    certainty: float = 1.0,
) -> Charge:
    ratio, slow = by_step
    times = math.exp(float(np.median(ratio)))
    return Charge(
        "slow_link",
        subject,
        mask,
        f"transfers between stage {stages[0]} and stage {stages[1]} take {times:.1f} times as long as those "
        f"of {peers}, from when both sides are there",
        often(int(slow.sum()), len(slow)) * certainty,
        (
            ("transfer_ratio", times),
            ("first_stage", float(stages[0])),
            ("second_stage", float(stages[1])),
        ),
        _ADVICE,
    )


def _ends(what_if: WhatIf, stages: tuple[int, int], replica: int, slow: set[tuple[int, int]]) -> Subject:
    """The worker that all slow links of a replica share, when there are two or more; else the link."""
    shared = set.intersection(*map(set, slow)) if len(slow) > 1 else set()
    if len(shared) == 1:
        return named(what_if.steps, stage=shared.pop(), replica=replica)
    link = named(what_if.steps, replica=replica)
    first, second = (int(what_if.steps.ranks[stage, replica]) for stage in stages)
    place = (("dp_rank", what_if.steps.dp_ranks[replica]), ("stage", stages[0]), ("rank", None))
    return Subject(f"{link.text}, link of rank {first} and rank {second}", place)


def _slower_way(what_if: WhatIf, links: tuple[Link, ...]) -> Floats:
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


def _mask(what_if: WhatIf, links: tuple[Link, ...], replica: int) -> Mask:
    found = np.zeros((len(what_if.stage), 1, what_if.worked_s.shape[2]), dtype=bool)
    found[[index for link in links for pair in link.pairs for index in pair], 0, replica] = True
    return found
