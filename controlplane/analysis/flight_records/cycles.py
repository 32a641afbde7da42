"""Find the roots of the waits: ranks that others wait for and that wait for nobody; and judge cycles.

In a cycle everybody waits. Who dropped the handle of a transfer is its root: gloo has given that up. If one
rank of a cycle through sends and receives has left out a call of its rounds (`rhythm.py`), it is the root. If
the cycle vanishes when open sends are taken not to block (most programs send without waiting), its root is
the rank that is left. Otherwise ranks called operations in different orders, and those are to blame who
called them in another order than most (`orders.py`). Where no third rank called both, those are to blame who
are missing where most of a group have come. A rank that waits in a send or receive may be missing there
because its peer left out the other end: over gloo, where transfers are numbered, only its rounds count."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records.waits import Wait, WaitKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class WaitRoot:
    """Where waits end. `waits`: those for its ranks from outside of them, or, of a cycle, those that blame
    the rank. `how`: `end`: it waits for nobody; `dropped`, `left_out`, `send`, `order`: the root of a
    cycle; `cycle`: unresolved."""

    ranks: tuple[int, ...]
    how: str
    waits: tuple[Wait, ...]


def roots(
    waits: Sequence[Wait], minority: Callable[[Wait], bool], left_out: Callable[[Wait], bool]
) -> list[WaitRoot]:
    """The roots, in order of their first ranks. What is not known is left out.

    `minority`: whether the awaited rank called in another order than most. `left_out`: whether it left out
    what is waited for, and called that in each of its rounds before."""
    sure = [each for each in waits if each.kind is not WaitKind.UNKNOWN]
    found: list[WaitRoot] = []
    for component in _ends(sure):
        toward = [each for each in sure if each.awaited in component]
        if len(component) == 1:
            found.append(WaitRoot(component, "end", tuple(toward)))
        else:
            found += _cycle(component, toward, minority, left_out)
    return sorted(found, key=lambda each: each.ranks)


def _cycle(
    component: tuple[int, ...],
    toward: Sequence[Wait],
    minority: Callable[[Wait], bool],
    left_out: Callable[[Wait], bool],
) -> list[WaitRoot]:
    within = [each for each in toward if each.waiter in component]
    dropped = _by_awaited(each for each in toward if each.kind is WaitKind.DROPPED)
    if dropped:
        return [WaitRoot((rank,), "dropped", waits) for rank, waits in dropped.items()]
    in_transfers = {each.waiter for each in within if each.entry.transfer and each.entry.transfer.place}
    without = _by_awaited(each for each in toward if in_transfers and left_out(each))
    if len(without) == 1:
        return [WaitRoot((rank,), "left_out", waits) for rank, waits in without.items()]
    ways: tuple[tuple[str, Callable[[Wait], bool]], ...] = (
        ("send", _blocks),
        ("order", minority),
        ("order", lambda wait: wait.awaited not in in_transfers and _most_arrived(wait)),
    )
    for how, keep in ways:
        kept = [each for each in within if keep(each)]
        ends = [end for end in _ends(kept) if len(end) == 1]
        if ends and len(ends) < len(component):
            return [
                WaitRoot(end, how, tuple(each for each in toward if each.awaited in end and keep(each)))
                for end in ends
            ]
    return [WaitRoot(component, "cycle", tuple(within))]


def _by_awaited(waits: Iterable[Wait]) -> dict[int, tuple[Wait, ...]]:
    found: dict[int, tuple[Wait, ...]] = {}
    for each in waits:
        found[each.awaited] = (*found.get(each.awaited, ()), each)
    return found


def _blocks(wait: Wait) -> bool:
    return wait.entry.transfer is None or not wait.entry.transfer.sends


def _most_arrived(wait: Wait) -> bool:
    """Whether more than half of a group of three or more have come to where the awaited rank has not."""
    return wait.size > 2 and 2 * wait.lacking < wait.size


def _ends(waits: Sequence[Wait]) -> list[tuple[int, ...]]:
    """The groups of ranks that wait for each other, and from which nobody waits for anyone else."""
    onward: dict[int, list[int]] = defaultdict(list)
    for each in waits:
        onward[each.waiter].append(each.awaited)
    components = _components(sorted({rank for each in waits for rank in (each.waiter, each.awaited)}), onward)
    at = {rank: number for number, component in enumerate(components) for rank in component}
    return [
        component
        for number, component in enumerate(components)
        if all(at[other] == number for rank in component for other in onward.get(rank, ()))
    ]


def _components(ranks: Iterable[int], onward: dict[int, list[int]]) -> list[tuple[int, ...]]:
    """The strongly connected components, each sorted (Tarjan 1972, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: dict[int, bool] = {}
    found: list[tuple[int, ...]] = []
    for start in ranks:
        if start in number:
            continue
        walk = [(start, iter(onward.get(start, ())))]
        number[start] = low[start] = len(number)
        stack.append(start)
        waiting[start] = True
        while walk:
            rank, others = walk[-1]
            deeper = next((other for other in others if _visit(rank, other, number, low, waiting)), None)
            if deeper is not None:
                number[deeper] = low[deeper] = len(number)
                stack.append(deeper)
                waiting[deeper] = True
                walk.append((deeper, iter(onward.get(deeper, ()))))
                continue
            walk.pop()
            if walk:
                low[walk[-1][0]] = min(low[walk[-1][0]], low[rank])
            if low[rank] == number[rank]:
                found.append(_popped(rank, stack, waiting))
    return found


def _visit(
    rank: int, other: int, number: dict[int, int], low: dict[int, int], waiting: dict[int, bool]
) -> bool:
    """Whether to go on to `other`; otherwise it is taken into account."""
    if other not in number:
        return True
    if waiting.get(other):
        low[rank] = min(low[rank], number[other])
    return False


def _popped(rank: int, stack: list[int], waiting: dict[int, bool]) -> tuple[int, ...]:
    found = []
    while True:
        found.append(stack.pop())
        waiting[found[-1]] = False
        if found[-1] == rank:
            return tuple(sorted(found))
