"""Decide which bundles of a base are too worn to be named by one more checkpoint.

A bundle is never changed. So while checkpoints go on naming one chunk of it, all of its bytes stay, also
those of chunks that no checkpoint names any more. At each save a writer looks at what its last save named. If
more than `DEAD_MOST` of the bytes of these bundles were not named, it writes anew what the most worn of them
still hold. Once retention has removed the older checkpoints, nobody names these bundles, and they are
collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.checkpoint.format.chunks import Chunk

DEAD_MOST = 0.3


def worn(named: Iterable[Chunk], sizes: Mapping[str, int]) -> frozenset[str]:
    """The bundles whose chunks are to be written anew.

    `named`: the chunks that the last save named; `sizes`: the bytes of each bundle."""
    alive: dict[str, int] = {}
    for chunk in set(named):
        if chunk.bundle in sizes:
            alive[chunk.bundle] = alive.get(chunk.bundle, 0) + chunk.stored
    dead = {bundle: max(0, sizes[bundle] - nbytes) for bundle, nbytes in alive.items()}
    left, total = sum(dead.values()), sum(sizes[bundle] for bundle in alive)
    found = set()
    for bundle in sorted(dead, key=lambda each: (-dead[each] / sizes[each], each)):
        if left <= DEAD_MOST * total:
            break
        found.add(bundle)
        left, total = left - dead[bundle], total - sizes[bundle]
    return frozenset(found)
