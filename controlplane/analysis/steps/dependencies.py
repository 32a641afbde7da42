"""Find what each operation of a step waits for in its own worker, and which compute each transfer serves."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from controlplane.analysis.steps.operations import (
    BACKWARD,
    COMPUTES,
    FORWARD,
    GATHER,
    RECEIVES,
    SCATTER,
    SENDS,
    SEPARATE,
    TAIL,
)
from controlplane.analysis.steps.records import TimelineError
from controlplane.analysis.steps.units import places, units

if TYPE_CHECKING:
    from controlplane.analysis.steps.records import Steps

SKEW_S = 0.0005
"""Clocks of two streams may differ by so many seconds; operations are put in order with that tolerance."""


class Dependencies:
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
        self.units = units(self.operations)
        self.places = places(self.operations, self.units, self.stages)
        self.last_chunk = max(self.places.values(), default=0)
        # by kind of compute, chunk of the whole model, and micro-batch:
        self.feeding: dict[tuple[str, int, int], int] = {}  # the send of a compute
        self.fed: dict[tuple[str, int, int], int] = {}  # the receive of a compute

    def chain(self, found: list[int]) -> None:
        """Make each of these operations wait for the one before it."""
        for first, second in itertools.pairwise(found):
            self.before[second].append(first)

    def computes(self, stage: int) -> list[int]:
        """Return the stage's computes in their recorded order. Raises TimelineError when there are none."""
        found = [index for kind in COMPUTES for index in self.by_kind[stage, kind]]
        if not found:
            raise TimelineError(f"stage {stage} has neither {FORWARD} nor {BACKWARD}: record its computes")
        return sorted(found, key=lambda index: (self.start_s[index], self.operations[index].seq_id, index))

    def key(self, index: int) -> tuple[str, int, int]:
        """What a compute works on: its kind, chunk of the whole model, and micro-batch."""
        unit = self.units[index]
        return unit.kind, self.places[self.operations[index].stage, unit.chunk], unit.micro_batch


def add_stage(b: Dependencies, stage: int) -> None:
    """Add all dependencies within one stage. Raises TimelineError when its operations do not fit."""
    found = b.computes(stage)
    b.chain(found)
    for kind in COMPUTES:
        ours = [index for index in found if b.operations[index].kind == kind]
        _receives(b, stage, kind, ours)
        _sends(b, stage, kind, ours)
    _gathers(b, stage, found)
    _tail(b, stage, found)


def _receives(b: Dependencies, stage: int, kind: str, computes: list[int]) -> None:
    """Make each compute wait for its receive, and the receive for the compute before that."""
    receives = b.by_kind[stage, RECEIVES[kind]]
    b.chain(receives)
    if not receives or not computes:
        return
    first = 0 if kind == FORWARD else b.last_chunk
    needing = [each for each in computes if b.key(each)[1] != first]
    latest = max(b.start_s[each] for each in computes)
    launched = [each for each in receives if b.start_s[each] <= latest + SKEW_S]
    what = f"{RECEIVES[kind]} of stage {stage}"
    previous = dict(zip(computes[1:], computes, strict=False))
    for receive, compute in _matched((receives, launched), needing, computes, what):
        b.before[compute].append(receive)
        if compute in previous:
            b.before[receive].append(previous[compute])
        key = b.key(compute)
        if key[1] != first:
            b.fed[key] = receive


def _sends(b: Dependencies, stage: int, kind: str, computes: list[int]) -> None:
    """Make each send wait for the compute whose result it sends."""
    sends = b.by_kind[stage, SENDS[kind]]
    b.chain(sends)
    if not sends or not computes:
        return
    last = b.last_chunk if kind == FORWARD else 0
    feeding = [each for each in computes if b.key(each)[1] != last]
    earliest = min(b.end_s[each] for each in computes)
    launched = [each for each in sends if b.end_s[each] >= earliest - SKEW_S]
    what = f"{SENDS[kind]} of stage {stage}"
    for send, compute in _matched((sends, launched), feeding, computes, what):
        b.before[send].append(compute)
        key = b.key(compute)
        if key[1] != last:
            b.feeding[key] = send


def _matched(
    recorded: tuple[list[int], list[int]], needing: list[int], computes: list[int], what: str
) -> list[tuple[int, int]]:
    """Pair each transfer with its compute, both in order. Raises TimelineError when their numbers do not fit.

    `recorded`: all transfers, and only those whose times fit the computes. `needing`: the computes that need
    a transfer. Profilers may record too many: some before or after all computes, or one for every compute, or
    one for every compute but the first."""
    skipping = [] if computes[0] in needing else [computes[1:]]
    for transfers in recorded:
        for candidates in (needing, computes, *skipping):
            if len(transfers) == len(candidates):
                return list(zip(transfers, candidates, strict=True))
    raise TimelineError(
        f"{what}: {len(recorded[0])} of them for {len(needing)} computes that need one; record whole steps, "
        "and number micro-batches and model chunks alike on all stages"
    )


def _gathers(b: Dependencies, stage: int, computes: list[int]) -> None:
    """The first forward compute of a model chunk waits for the last gathering of its parameters."""
    gathers = b.by_kind[stage, GATHER]
    b.chain(gathers)
    last = {b.operations[index].chunk: index for index in gathers}
    for chunk, gather in last.items():
        forward = [each for each in computes if b.operations[each].kind == FORWARD]
        ours = [each for each in forward if b.operations[each].chunk == chunk] or forward or computes
        b.before[ours[0]].append(gather)


def _tail(b: Dependencies, stage: int, computes: list[int]) -> None:
    """Make what follows the last compute run in order; gradients may be scattered during computes."""
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
    after, scattered = [last], scatters[-1:] if overlaps else []
    for kind in TAIL:
        for index in b.by_kind[stage, kind] if not (overlaps and kind == SCATTER) else ():
            if kind != "gc":
                after, scattered = after + scattered, []
            b.before[index].extend(after)
            after = [index]
