"""Judge which replica of a state differs from the others, by majority. Pure.

Ranks that claim the same key must give the same number. Of three ranks or more, those that differ from what
more than half of them hold are odd: one of them is to be believed less than all the others together. Of two
that differ, nobody can say which is right."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.agreement.differing import Details

MAJORITY_OF = 3
"""Fewer replicas have no majority."""
TENSORS_MAX = 5
"""Tensors that are named."""
GRADIENTS_MAX = 2
"""Of these, gradients, where the state differs, too."""
DIGESTS_MAX = 16
"""Ranks whose digests are given: the odd ones first."""

Claims = dict[int, dict[int, int]]
"""For each key, the number of each rank that claims it."""


@dataclass(frozen=True, slots=True)
class OddReplicas:
    """Replicas that differ. `odd`: the ranks to blame; (): nobody can say. `ranks`: all that hold this.

    `tensors`: what differs, by name; `digests`: of the first of them, as `rank N: digest`."""

    ranks: tuple[int, ...]
    odd: tuple[int, ...]
    tensors: tuple[str, ...]
    more: int  # tensors that are not named
    digests: tuple[str, ...]


def claims(rows: Sequence[Sequence[int]]) -> Claims:
    """What each rank claims. A row: key and number, again and again; a key of 0 claims nothing."""
    found: Claims = defaultdict(dict)
    for rank, row in enumerate(rows):
        for key, number in zip(row[::2], row[1::2], strict=True):
            if key:
                found[key][rank] = number
    return dict(found)


def differing(found: Claims) -> set[int]:
    """The keys whose ranks do not all give the same number."""
    return {key for key, numbers in found.items() if len(set(numbers.values())) > 1}


def alone(found: Claims) -> set[int]:
    """The keys that only one rank claims: nobody holds a replica of that."""
    return {key for key, numbers in found.items() if len(numbers) == 1}


def odd(numbers: Mapping[int, object]) -> tuple[int, ...]:
    """The ranks that differ from the majority, in order; (): none, or there is no majority."""
    if not has_majority(numbers):
        return ()
    common = Counter(numbers.values()).most_common(1)[0][0]
    return tuple(rank for rank, number in sorted(numbers.items()) if number != common)


def has_majority(numbers: Mapping[int, object]) -> bool:
    """Whether more than half of these ranks, which are at least three, hold the same."""
    count = max(Counter(numbers.values()).values())
    return len(numbers) >= MAJORITY_OF and 2 * count > len(numbers)


def judge(every: Sequence[Details]) -> OddReplicas:
    """Who differs, and in what. `every`: the details of each rank, empty where it holds none of it."""
    ranks: set[int] = set()
    blamed: set[int] = set()
    names: list[str] = []
    shown: tuple[str, ...] = ()
    for key in dict.fromkeys(key for held in every for key in held):
        holders = [rank for rank, held in enumerate(every) if key in held]
        for name in dict.fromkeys(name for rank in holders for name in every[rank][key]):
            given = {rank: tuple(every[rank][key].get(name, ("missing", ""))) for rank in holders}
            if len(set(given.values())) > 1:
                names.append(name)
                ranks.update(holders)
                blamed.update(odd(given))
                shown = shown or _shown(given)
    named = tuple(dict.fromkeys(names))
    return OddReplicas(
        ranks=tuple(sorted(ranks)),
        odd=tuple(sorted(blamed)),
        tensors=named[:TENSORS_MAX],
        more=max(len(named) - TENSORS_MAX, 0),
        digests=shown,
    )


def together(gradients: OddReplicas, state: OddReplicas) -> OddReplicas:
    """Both in one, gradients first: where both differ, most of the names are the state's."""
    few = GRADIENTS_MAX if state.tensors else TENSORS_MAX
    named = (*gradients.tensors[:few], *state.tensors)
    lost = len(gradients.tensors) - len(gradients.tensors[:few])
    return OddReplicas(
        ranks=tuple(sorted({*gradients.ranks, *state.ranks})),
        odd=tuple(sorted({*gradients.odd, *state.odd})),
        tensors=named[:TENSORS_MAX],
        more=gradients.more + state.more + lost + max(len(named) - TENSORS_MAX, 0),
        digests=gradients.digests or state.digests,
    )


def _shown(given: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """The digests as text: those of odd ranks first."""
    first = odd(given)
    order = (*first, *(rank for rank in sorted(given) if rank not in first))
    return tuple(f"rank {rank}: {given[rank][1] or 'missing'}" for rank in order[:DIGESTS_MAX])
