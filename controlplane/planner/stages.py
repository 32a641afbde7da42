"""Assign layers to pipeline stages so that the slowest one is as fast as possible.

By dynamic programming over stages and layers."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=256)
def balance(layers: int, stages: int, head: float) -> tuple[int, ...]:
    """Layers of each stage, at least one each. `head`: extra work of the last stage, in layers.

    Minimises the load of the most loaded stage. Among equals the earlier stages get fewer layers, since
    they hold more activations. best[s][n]: the least possible maximum for n layers in the first s stages.
    ValueError when there are more stages than layers."""
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot fill {stages} stages")
    best = [float(n) if n else float("inf") for n in range(layers + 1)]
    cuts: list[list[int]] = []
    for stage in range(2, stages + 1):
        extra = head if stage == stages else 0.0
        row, cut = _extend(best, stage, layers, extra)
        best = row
        cuts.append(cut)
    return _walk_back(layers, cuts)


def _extend(before: list[float], stage: int, layers: int, extra: float) -> tuple[list[float], list[int]]:
    """Add one stage: for every n the least maximum, and the number of layers that the stages before it
    take."""
    row, cut = [float("inf")] * (layers + 1), [0] * (layers + 1)
    for n in range(stage, layers + 1):
        low, high = stage - 1, n - 1
        while low < high:  # with k, before[k] grows and this stage's load falls: they cross once
            middle = (low + high) // 2
            if before[middle] >= n - middle + extra:
                high = middle
            else:
                low = middle + 1
        options = [k for k in (low - 1, low) if stage - 1 <= k <= n - 1]
        row[n], cut[n] = min((max(before[k], n - k + extra), k) for k in options)
    return row, cut


def _walk_back(layers: int, cuts: list[list[int]]) -> tuple[int, ...]:
    """The layers of each stage, from the choices of `_extend`, last stage first."""
    sizes, left = [], layers
    for cut in reversed(cuts):
        sizes.append(left - cut[left])
        left = cut[left]
    return (left, *reversed(sizes))
