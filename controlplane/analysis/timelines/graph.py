"""Build the dependency graph of a step: what each operation waits for, and which operations meet.

The graph follows the what-if analysis of Lin et al. ("Understanding Stragglers in Large Model Training Using
What-if Analysis", OSDI 2025). In one worker, computes run in their recorded order, each kind of transfer runs
in order, a receive comes before its compute and a compute before its send; the first compute of a model chunk
waits for its parameters, and the tail of the step (`operations.TAIL`) for the last compute. Operations that
meet (`operations.Meets`) start when the last of them could. The recorded order is that of one step of one
replica: pipeline schedules are static."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.timelines.operations import (
    BACKWARD,
    BEHAVIOURS,
    COMPUTES,
    FORWARD,
    GATHER,
    RECEIVES,
    SCATTER,
    SENDS,
    SEPARATE,
    TAIL,
    Meets,
)
from controlplane.analysis.timelines.records import TimelineError

if TYPE_CHECKING:
    from controlplane.analysis.timelines.records import Steps

SKEW_S = 0.0005
"""By so much may clocks of two streams differ when operations are put in order."""


@dataclass(frozen=True, slots=True)
class Node:
    """Operations (indices) that start together; one alone when it meets nobody in its pipeline.

    `before`: for each member, the operations that must be over. `replicas`: all replicas meet, too."""

    members: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    meets: bool
    replicas: bool


@dataclass(frozen=True, slots=True)
class Link:
    """The transfers of one kind from a stage to the next one, in one pipeline: (sending, receiving)."""

    kind: str  # of the computes that it feeds
    source: int
    target: int
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of a step, each behind those that it depends on, and the links between stages."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


class _Builder:
    """Collects dependencies and groups, stage by stage."""

    def __init__(self, steps: Steps) -> None:
        self.operations, self.stages = steps.operations, steps.stages
        self.start_s, self.end_s = steps.start_s[:, 0, 0], steps.end_s[:, 0, 0]
        self.before: defaultdict[int, list[int]] = defaultdict(list)
        self.by_kind: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for index, operation in enumerate(self.operations):
            self.by_kind[operation.stage, operation.kind].append(index)
        for found in self.by_kind.values():
            found.sort(key=lambda index: self.operations[index].seq_id)
        chunks = 1 + max((each.chunk for each in self.operations if each.kind in COMPUTES), default=0)
        self.last_chunk = chunks * self.stages - 1
        self.feeding: dict[
            tuple[str, int, int], int
        ] = {}  # a send by compute kind, global chunk, micro-batch
        self.fed: dict[tuple[str, int, int], int] = {}  # a receive, likewise

    def chain(self, found: list[int]) -> None:
        for first, second in itertools.pairwise(found):
            self.before[second].append(first)

    def computes(self, stage: int) -> list[int]:
        """In their recorded order. Raises TimelineError when there are none."""
        found = [index for kind in COMPUTES for index in self.by_kind[stage, kind]]
        if not found:
            raise TimelineError(f"stage {stage} has neither {FORWARD} nor {BACKWARD}: record its computes")
        return sorted(found, key=lambda index: (self.start_s[index], self.operations[index].seq_id, index))

    def key(self, index: int, place: dict[int, int]) -> tuple[str, int, int]:
        """What a compute works on: its kind, chunk of the whole model, and micro-batch."""
        each = self.operations[index]
        whole = each.global_chunk if each.global_chunk >= 0 else max(0, each.chunk) * self.stages + each.stage
        return each.kind, whole, each.micro_batch if each.micro_batch >= 0 else place[index]

    def places(self, found: list[int]) -> dict[int, int]:
        """How many computes of the same kind and chunk come before each."""
        seen: defaultdict[tuple[str, int], int] = defaultdict(int)
        places = {}
        for index in found:
            name = self.operations[index].kind, self.operations[index].chunk
            places[index] = seen[name]
            seen[name] += 1
        return places


def build(steps: Steps) -> Graph:
    """The graph of a step. Raises TimelineError when the recorded operations do not fit each other."""
    builder = _Builder(steps)
    for stage in range(steps.stages):
        found = builder.computes(stage)
        builder.chain(found)
        places = builder.places(found)
        for kind in COMPUTES:
            ours = [index for index in found if builder.operations[index].kind == kind]
            _receives(builder, stage, kind, ours, places)
            _sends(builder, stage, kind, ours, places)
        _gathers(builder, stage, found)
        _tail(builder, stage, found)
    links = _links(builder)
    return Graph(_ordered(builder, links), links)


def _receives(b: _Builder, stage: int, kind: str, computes: list[int], places: dict[int, int]) -> None:
    """A receive waits for the compute before its own, and its own waits for it."""
    receives = b.by_kind[stage, RECEIVES[kind]]
    b.chain(receives)
    if not receives or not computes:
        return
    first = 0 if kind == FORWARD else b.last_chunk
    needing = [each for each in computes if b.key(each, places)[1] != first]
    latest = max(b.start_s[each] for each in computes)
    if len(receives) > len(computes):  # a profiler may record receives that were never launched
        receives = [each for each in receives if b.start_s[each] <= latest + SKEW_S]
    matched = _matched(receives, needing, computes, f"{RECEIVES[kind]} of stage {stage}")
    for receive, compute in matched:
        b.before[compute].append(receive)
        place = computes.index(compute)
        if place:
            b.before[receive].append(computes[place - 1])
        key = b.key(compute, places)
        if key[1] != first:
            b.fed[key] = receive


def _sends(b: _Builder, stage: int, kind: str, computes: list[int], places: dict[int, int]) -> None:
    """A send waits for its compute."""
    sends = b.by_kind[stage, SENDS[kind]]
    b.chain(sends)
    if not sends or not computes:
        return
    last = b.last_chunk if kind == FORWARD else 0
    feeding = [each for each in computes if b.key(each, places)[1] != last]
    earliest = min(b.end_s[each] for each in computes)
    if len(sends) > len(computes):
        sends = [each for each in sends if b.end_s[each] >= earliest - SKEW_S]
    for send, compute in _matched(sends, feeding, computes, f"{SENDS[kind]} of stage {stage}"):
        b.before[send].append(compute)
        key = b.key(compute, places)
        if key[1] != last:
            b.feeding[key] = send


def _matched(
    transfers: list[int], needing: list[int], computes: list[int], what: str
) -> list[tuple[int, int]]:
    """Each transfer with its compute, both in order. Raises TimelineError when their numbers do not fit.

    Profilers may record a transfer for every compute, also for those that need none, the first one apart."""
    skipping = [] if computes[0] in needing else [computes[1:]]
    for candidates in (needing, computes, *skipping):
        if len(transfers) == len(candidates):
            return list(zip(transfers, candidates, strict=True))
    raise TimelineError(
        f"{what}: {len(transfers)} of them for {len(needing)} computes that need one; record whole steps, "
        "and number micro-batches and model chunks alike on all stages"
    )


def _gathers(b: _Builder, stage: int, computes: list[int]) -> None:
    """The first forward compute of a model chunk waits for the last gathering of its parameters."""
    gathers = b.by_kind[stage, GATHER]
    b.chain(gathers)
    last = {b.operations[index].chunk: index for index in gathers}
    for chunk, gather in last.items():
        forward = [each for each in computes if b.operations[each].kind == FORWARD]
        ours = [each for each in forward if b.operations[each].chunk == chunk] or forward or computes
        b.before[ours[0]].append(gather)


def _tail(b: _Builder, stage: int, computes: list[int]) -> None:
    """What follows the last compute, one after another; gradients may be scattered while computes go on."""
    last = max(computes, key=lambda index: (b.end_s[index], index))
    scatters = b.by_kind[stage, SCATTER]
    overlaps = bool(b.by_kind[stage, SEPARATE]) or any(
        b.start_s[i] < b.end_s[last] - SKEW_S for i in scatters
    )
    if overlaps:
        b.chain(scatters)
        for index in scatters:
            ours = [i for i in computes if b.operations[i].kind == BACKWARD]
            ours = [i for i in ours if b.operations[i].chunk == b.operations[index].chunk] or ours or computes
            begun = [i for i in ours if b.end_s[i] <= b.start_s[index] + SKEW_S]
            b.before[index].append((begun or ours)[-1])
    after = [last, *scatters[-1:]] if overlaps else [last]
    for kind in TAIL:
        for index in b.by_kind[stage, kind] if not (overlaps and kind == SCATTER) else ():
            b.before[index].extend(after)
            after = [*scatters[-1:], index] if overlaps and kind == "gc" else [index]


def _links(b: _Builder) -> tuple[Link, ...]:
    """Pair each send with its receive. Raises TimelineError for one that is alone."""
    pairs: defaultdict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
    fed = dict(b.fed)
    for (kind, chunk, micro_batch), send in b.feeding.items():
        onward = chunk + (1 if kind == FORWARD else -1)
        receive = fed.pop((kind, onward, micro_batch), None)
        if receive is None:
            raise TimelineError(f"{b.operations[send].name} has no receive: record all stages of a step")
        source, target = b.operations[send].stage, b.operations[receive].stage
        pairs[kind, source, target].append((send, receive))
    if fed:
        receive = next(iter(fed.values()))
        raise TimelineError(f"{b.operations[receive].name} has no send: record all stages of a step")
    return tuple(Link(*name, tuple(found)) for name, found in sorted(pairs.items()))


def _groups(b: _Builder, links: tuple[Link, ...]) -> list[tuple[int, ...]]:
    """All operations, those that meet in one pipeline together."""
    groups: list[tuple[int, ...]] = [pair for link in links for pair in link.pairs]
    paired = {index for pair in groups for index in pair}
    wide: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for index, operation in enumerate(b.operations):
        if BEHAVIOURS[operation.kind].meets in (Meets.END_STAGES, Meets.EVERYBODY):
            wide[operation.kind, operation.seq_id].append(index)
        elif index not in paired:
            groups.append((index,))
    return [*groups, *(tuple(found) for found in wide.values())]


def _ordered(b: _Builder, links: tuple[Link, ...]) -> tuple[Node, ...]:
    """Each group behind those it depends on. Raises TimelineError when they wait in a circle."""
    groups = _groups(b, links)
    of = {index: number for number, group in enumerate(groups) for index in group}
    waits = [{of[each] for index in group for each in b.before[index]} for group in groups]
    wanted: defaultdict[int, list[int]] = defaultdict(list)
    for number, found in enumerate(waits):
        for each in found:
            wanted[each].append(number)
    left = [len(found) for found in waits]
    ready = [number for number, count in enumerate(left) if not count]
    for number in ready:  # grows while it is walked
        for each in wanted[number]:
            left[each] -= 1
            if not left[each]:
                ready.append(each)
    if len(ready) < len(groups):
        stuck = next(number for number, count in enumerate(left) if count)
        name = b.operations[groups[stuck][0]].name
        raise TimelineError(f"{name} waits for itself: the recorded order is no pipeline schedule")
    return tuple(_node(b, groups[number]) for number in ready)


def _node(b: _Builder, group: tuple[int, ...]) -> Node:
    meets = BEHAVIOURS[b.operations[group[0]].kind].meets
    before = tuple(tuple(sorted(set(b.before[index]))) for index in group)
    replicas = meets in (Meets.REPLICAS, Meets.EVERYBODY)
    return Node(group, before, replicas or meets is not Meets.NOBODY, replicas)
