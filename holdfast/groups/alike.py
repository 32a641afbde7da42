"""Check that all ranks of a group run the same version of Holdfast.

The messages between ranks carry no version number, and two versions may deal samples or undo a step
differently. So before it meets the others, each rank counts itself in the generation's store, under a key
with its version. After they have met, each rank must find as many of its version as there are ranks. Versions
from before this check are found too: the count stays short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.version import RANKS_SPEAK, __version__

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_KEY = f"alike/{__version__}/{RANKS_SPEAK}"


def publish(store: Store, rank: int) -> None:
    """Count this rank, once, before it meets the others."""
    if store.add(f"{_KEY}/{rank}", 1) == 1:
        store.add(_KEY, 1)


def check(store: Store, world_size: int) -> None:
    """Raise SessionError unless all ranks, which have met, run this version."""
    count = store.add(_KEY, 0)
    if count != world_size:
        raise SessionError(
            f"ranks of two versions of Holdfast are in one job: {count} of {world_size} run this one "
            f"(holdfast {__version__}, protocol {RANKS_SPEAK}). Nothing was exchanged. Install one version "
            "on all nodes of the job (replace all trainers' pods at once), and submit it again under its "
            "name: it continues from its newest checkpoint"
        )
