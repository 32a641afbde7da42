"""Check that all ranks of a group run one version: their messages carry no version number, and two versions
may deal samples, or undo a step, in two ways.

Each rank counts itself at the generation's store, under its version, before it meets the others. Whoever has
met them finds as many of its version as there are ranks, or says that this cannot be. Ranks of versions that
did not count themselves yet are found so too: the count stays short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.version import RANKS_SPEAK, __version__

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_KEY = f"alike/{__version__}/{RANKS_SPEAK}"


def say(store: Store, rank: int) -> None:
    """Count this rank, once, before it meets the others."""
    if store.add(f"{_KEY}/{rank}", 1) == 1:
        store.add(_KEY, 1)


def check(store: Store, world_size: int) -> None:
    """Raise SessionError unless all ranks, which have met, are of this version."""
    count = store.add(_KEY, 0)
    if count != world_size:
        raise SessionError(
            f"ranks of two versions of Holdfast are in one job: {count} of {world_size} are of this one "
            f"(holdfast {__version__}, ranks' words {RANKS_SPEAK}). Nothing was exchanged. Give all nodes of "
            "the job one version (of trainers' pods, replace all at once), and submit it again under its "
            "name: it goes on from its newest checkpoint"
        )
