"""Build the dependency graph of a step: what each operation waits for, and which operations meet.

The graph follows the what-if analysis of Lin et al. ("Understanding Stragglers in Large Model Training Using
What-if Analysis", OSDI 2025). In one worker, computes run in their recorded order, each kind of transfer runs
in order, a receive comes before its compute and a compute before its send; the first compute of a model chunk
waits for its parameters, and the tail of the step (`operations.TAIL`) for the last compute. Operations that
meet (`operations.Meets`) start when the last of them could. The recorded order is that of one step of one
replica: pipeline schedules are static."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from controlplane.analysis.steps.dependencies import Dependencies, add_stage
from controlplane.analysis.steps.operations import BEHAVIOURS, FORWARD, Meets
from controlplane.analysis.steps.records import Steps, TimelineError


@dataclass(frozen=True, slots=True)
class MeetingOperations:
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

    nodes: tuple[MeetingOperations, ...]
    links: tuple[Link, ...]


def build(steps: Steps) -> Graph:
    """The graph of a step. Raises TimelineError when the recorded operations do not fit each other."""
    found = Dependencies(steps)
    for stage in range(steps.stages):
        add_stage(found, stage)
    links = _links(found)
    return Graph(_ordered(found, links), links)


def _links(b: Dependencies) -> tuple[Link, ...]:
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


def _groups(b: Dependencies, links: tuple[Link, ...]) -> list[tuple[int, ...]]:
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


def _ordered(b: Dependencies, links: tuple[Link, ...]) -> tuple[MeetingOperations, ...]:
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


def _node(b: Dependencies, group: tuple[int, ...]) -> MeetingOperations:
    meets = BEHAVIOURS[b.operations[group[0]].kind].meets
    before = tuple(tuple(sorted(set(b.before[index]))) for index in group)
    replicas = meets in (Meets.REPLICAS, Meets.EVERYBODY)
    return MeetingOperations(group, before, replicas or meets is not Meets.NOBODY, replicas)
