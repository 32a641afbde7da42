"""Sum up which state all ranks held after a run of the steps: what most held, and the others. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.ipc.messages.replicas import ODD_MAX, Pass

if TYPE_CHECKING:
    from collections.abc import Sequence


def summed_up(kind: str, shift: int, digests: Sequence[int]) -> Pass | None:
    """The pass of these digests (one per rank, 64 bits); None if more ranks differ than can be listed."""
    counts = Counter(digests)
    common = max(digests, key=lambda digest: (counts[digest], -digests.index(digest)))
    odd = tuple(rank for rank, digest in enumerate(digests) if digest != common)
    if len(odd) > ODD_MAX:
        return None
    return Pass(kind, shift, f"{common:016x}", odd, tuple(f"{digests[rank]:016x}" for rank in odd))
