"""Find where ranks differ that must be equal, and word the error: names, forms, ranks and fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agreement.proof import NUMBERS
from holdfast.clean.looks.naming import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMED_MAX = 5
RESUMED = (
    "They held the same when this generation began with a state of before. So the cause may be what the "
    "script keeps and does not track (a number in an attribute, a random generator): a rank that was "
    "replaced has it anew. Rank 0's log names what the steps change and is not tracked: track it. Else: "
)
Details = dict[str, dict[str, list[str]]]
"""For each object's key: the form (dtype and shape) and the digest of each thing in it."""

CURES = (
    "Build the same on every rank (torch.manual_seed(...) before building), or declare how they differ: "
    "track(..., from_rank_0=True): rank 0's is given to all at the start; track(..., per_rank=True): each "
    'rank has its own (local SGD, federated averaging); track(..., shard="name"): only ranks that give this '
    "name hold the same (experts). Run with --pipeline-parallel or --tensor-parallel where ranks are stages "
    "or parts of the model."
)


UNUSED = (
    "If some parameters take no part in the loss of a step, give session.ddp(model, "
    "find_unused_parameters=True): without it, DDP does not finish averaging that step's gradients. Else: "
)


def keys(rows: Sequence[Sequence[int]]) -> tuple[set[int], set[int]]:
    """The keys under which ranks hold different content: those of states, and those of buffers."""
    found: tuple[dict[int, set[int]], dict[int, set[int]]] = {}, {}
    for row in rows:
        for at in range(0, len(row), NUMBERS):
            for place in range(at, at + NUMBERS, 2):
                if row[place]:
                    kind = found[place == at + NUMBERS - 2]
                    kind.setdefault(row[place], set()).add(row[place + 1])
    states, buffers = ({key for key, seen in kind.items() if len(seen) > 1} for kind in found)
    return states, buffers


def text(every: list[Details], when: str, *, resumed: bool = False) -> str:
    """The text of the error, equal on all ranks. `resumed`: they were equal in this generation, which went on
    with a state of before."""
    names: list[str] = []
    ranks: dict[tuple[int, ...], None] = {}
    for key in dict.fromkeys(key for held in every for key in held):
        holders = [rank for rank, held in enumerate(every) if key in held]
        things = dict.fromkeys(name for rank in holders for name in every[rank][key])
        for name in things:
            by_rank = {rank: every[rank][key].get(name, ["missing", ""]) for rank in holders}
            if len({tuple(value) for value in by_rank.values()}) > 1:
                names.append(name + _forms(by_rank))
                odd = tuple(rank for rank in holders if by_rank[rank] != by_rank[holders[0]])
                ranks.setdefault((holders[0], *odd))
    named, more = shown(names, _NAMED_MAX)
    who = "; ".join(f"rank {first} and {listed(odd)} differ" for first, *odd in list(ranks)[:_NAMED_MAX])
    trained = UNUSED if when.startswith("after step") and not resumed else ""
    cures = (RESUMED if resumed else trained) + CURES
    return f"tracked state differs between ranks, {when}: {named or 'the state'}{more} ({who}). {cures}"


def _forms(by_rank: dict[int, list[str]]) -> str:
    """The forms, if they differ; else ""."""
    forms = {value[0]: rank for rank, value in reversed(by_rank.items())}
    if len(forms) == 1:
        return ""
    return " (" + ", ".join(f"{form} on rank {rank}" for form, rank in list(forms.items())[:3]) + ")"


def listed(ranks: Sequence[int]) -> str:
    """These ranks, in words."""
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
