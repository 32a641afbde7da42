"""Say what each compute works on, so that stages can be put side by side and transfers be paired.

Recorders number micro-batches and model chunks differently, or not at all. The recorded numbers are taken
if they tell all computes apart. If not, computes are numbered in their order, and chunks are taken to go
round the stages."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from controlplane.analysis.steps.operations import COMPUTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.analysis.steps.records import Operation


class Unit(NamedTuple):
    """What all stages do: a pass (forward or backward) of a micro-batch through a model chunk of each."""

    kind: str
    chunk: int
    micro_batch: int


def units(operations: Sequence[Operation]) -> dict[int, Unit]:
    """The unit of each compute, by the index of its operation."""
    groups: defaultdict[tuple[int, str, int], list[int]] = defaultdict(list)
    for index, each in enumerate(operations):
        if each.kind in COMPUTES:
            groups[each.stage, each.kind, max(0, each.chunk)].append(index)
    numbers = {name: [operations[index].micro_batch for index in found] for name, found in groups.items()}
    numbered = all(min(found) >= 0 and len(set(found)) == len(found) for found in numbers.values())
    made = {}
    for (_, kind, chunk), found in groups.items():
        for count, index in enumerate(sorted(found, key=lambda index: operations[index].seq_id)):
            made[index] = Unit(kind, chunk, operations[index].micro_batch if numbered else count)
    return made


def places(
    operations: Sequence[Operation], of: Mapping[int, Unit], stages: int
) -> dict[tuple[int, int], int]:
    """The place of each (stage, chunk) in the whole model, from 0."""
    found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for index, unit in of.items():
        found[operations[index].stage, unit.chunk].add(operations[index].global_chunk)
    numbered = {name: next(iter(numbers)) for name, numbers in found.items() if len(numbers) == 1}
    if sorted(numbered.values()) == list(range(len(found))):
        return numbered
    return {(stage, chunk): chunk * stages + stage for stage, chunk in found}
