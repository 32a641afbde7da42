"""Find the ranks that called something else than the others as the same collective of a group.

The first difference in a group counts; what follows it is its consequence. Those who differ from more than
half of the ranks with a record are to blame. Without such a majority (two ranks, a tie) it cannot be
known."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.wording import at, ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.records import FlightEntry, Sizes
    from controlplane.analysis.flight_records.standing import RankRecords

Shape = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class CallSignature:
    """What must agree between the ranks of a collective. Operations that were launched together count as
    one."""

    operations: tuple[str, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class DifferentCall:
    """Ranks that called something else, or several that disagree when `settled` is False."""

    kind: str
    group: int
    sequence: int
    ranks: tuple[int, ...]
    settled: bool
    entries: dict[int, FlightEntry]
    usual: FlightEntry
    usual_ranks: tuple[int, ...]
    words: str


def different_calls(histories: dict[int, RankRecords], groups: JobGroups) -> list[DifferentCall]:
    """The first difference in each group that has one."""
    found = []
    for index, group in enumerate(groups.all):
        calls = {
            rank: histories[rank].collectives[index]
            for rank in group.members
            if rank in histories and index in histories[rank].collectives
        }
        if len(calls) > 1 and (first := _first(index, calls)):
            found.append(first)
    return found


def _first(group: int, calls: dict[int, dict[int, list[FlightEntry]]]) -> DifferentCall | None:
    by_sequence: dict[int, list[int]] = defaultdict(list)
    for rank, mine in calls.items():
        for sequence in mine:
            by_sequence[sequence].append(rank)
    for sequence in sorted(by_sequence):
        ranks = by_sequence[sequence]
        if len(ranks) > 1 and (found := _compare(group, sequence, ranks, calls)):
            return found
    return None


def _compare(
    group: int, sequence: int, ranks: Sequence[int], calls: dict[int, dict[int, list[FlightEntry]]]
) -> DifferentCall | None:
    stuck = all(any(each.open for each in calls[rank][sequence]) for rank in ranks)
    classes: dict[CallSignature, list[int]] = defaultdict(list)
    for rank in ranks:
        classes[_signature(calls[rank][sequence], stuck)].append(rank)
    if len(classes) == 1:
        return None
    usual, most = max(classes.items(), key=lambda item: (len(item[1]), -min(item[1])))
    settled = 2 * len(most) > len(ranks)
    odd = [rank for rank in ranks if not settled or rank not in most]
    other = next(signature for signature, its in classes.items() if its is not most)
    kind = _kind(usual, other)
    words = ""
    if settled:
        theirs, mine = (
            [_signature(calls[rank][sequence + 1], stuck) for rank in its if sequence + 1 in calls[rank]]
            for its in (most, odd)
        )
        later = _later(usual, other, theirs, mine)
        kind, words = later or (kind, "")
    return DifferentCall(
        kind,
        group,
        sequence,
        tuple(odd),
        settled,
        {rank: calls[rank][sequence][0] for rank in odd},
        calls[most[0]][sequence][0],
        tuple(most),
        words,
    )


def _kind(usual: CallSignature, other: CallSignature) -> str:
    if usual.operations != other.operations:
        return "other_collective"
    return "other_shape" if usual.shapes != other.shapes else "other_dtype"


def _later(
    usual: CallSignature,
    other: CallSignature,
    theirs: Sequence[CallSignature],
    mine: Sequence[CallSignature],
) -> tuple[str, str] | None:
    """Whether the odd ranks called in another order, or left one out.

    `theirs`, `mine`: what the others, and the odd ranks, called next, as far as it is recorded."""
    if not theirs or theirs[0] != other:
        return None
    if mine and mine[0] == usual:
        return "other_order", "it calls this one and the next the other way round"
    return _kind(usual, other), "this is what the others call next: it may have left one out"


def _signature(entries: Sequence[FlightEntry], stuck: bool) -> CallSignature:
    """What must agree. `stuck`: nobody has completed it, so every difference in shape matters. Of what was
    completed, only numbers of elements: [2, 4] and [8] are the same to the network."""
    return CallSignature(
        tuple(each.operation for each in entries),
        tuple(_shapes(each, stuck) for each in entries),
        tuple(_dtypes(each) for each in entries),
    )


def _shapes(entry: FlightEntry, stuck: bool) -> Shape:
    operation = entry.operation
    uneven = operation in policy.UNEVEN_INPUTS
    if uneven:
        one, whole = entry.input_sizes, entry.output_sizes
        if operation == "reduce_scatter":
            one, whole = whole, one
        even = len(set(whole)) <= 1
        return (_sizes(one, stuck), _sizes(whole, stuck)) if even else (_sizes(whole, stuck),)
    inputs = _sizes(entry.input_sizes, stuck) if operation in policy.SAME_INPUTS else ()
    outputs = _sizes(entry.output_sizes, stuck) if operation in policy.SAME_OUTPUTS else ()
    return inputs, outputs


def _sizes(sizes: Sizes, stuck: bool) -> Sizes:
    return sizes if stuck else tuple((math.prod(each),) for each in sizes)


def _dtypes(entry: FlightEntry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dtypes that it uses; roots of one-sided collectives have more tensors than others, not other
    ones."""
    if entry.operation in policy.ONE_SIDED:
        return tuple(sorted({*entry.input_dtypes, *entry.output_dtypes})), ()
    return tuple(sorted(set(entry.input_dtypes))), tuple(sorted(set(entry.output_dtypes)))


def called(entry: FlightEntry) -> str:
    """What a rank called: `all_reduce of [4, 8] Float`."""
    sizes = ", ".join(str(list(each)) for each in entry.input_sizes[: policy.NAMED_MAX])
    kinds = "/".join(dict.fromkeys(entry.input_dtypes))
    return f"{entry.operation} of {sizes or 'nothing'} {kinds}".strip()


def told(call: DifferentCall, rank: int) -> str:
    """The difference between one rank and the others, in a sentence."""
    mine = f"it calls {_placed(call.entries[rank])}"
    if not call.settled:
        others = [each for each in call.entries if each != rank][: policy.NAMED_MAX]
        theirs = "; ".join(f"rank {each}: {_placed(call.entries[each])}" for each in others)
        return f"{mine} ({theirs}): without a majority it cannot be known which is wrong"
    more = f"; {call.words}" if call.words else ""
    return f"{mine}, while {ranked(call.usual_ranks)} called {_placed(call.usual)}{more}"


def _placed(entry: FlightEntry) -> str:
    return f"{called(entry)}{at(entry)}"
