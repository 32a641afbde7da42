"""Read from a rank's flight record which all-reduces of gradients it calls in each step. Pure.

A record has the operations of the newest steps with the sizes of their tensors, in the order of the calls.
Steps repeat: the shortest sequence that came three times at the end is what a step calls. How long an
operation took is not in it: gloo records no end, and NCCL one that is looked for now and then only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.proposals import policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.records import FlightDump, FlightEntry

ROUNDS = 3
"""A sequence counts as a step's when the newest calls are this many of it."""
DTYPE_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Double": 8}
"""Bytes of one number of the types that gradients have, by torch's names."""
SHARDED = (
    "all_gather",
    "_all_gather_base",
    "reduce_scatter",
    "_reduce_scatter_base",
    "all_gather_into_tensor",
)
"""A job that calls these with large tensors shards its parameters, and has no buckets."""


@dataclass(frozen=True, slots=True)
class StepReductions:
    """The all-reduces of one step. `bytes_each`: of those that are as large as gradients.

    `reason`: why that is not known; "": it is."""

    rank: int
    generation: int
    bytes_each: tuple[int, ...] = ()
    calls: int = 0  # of a step, the small ones included
    reason: str = ""


def of_record(rank: int, generation: int, dump: FlightDump) -> StepReductions:
    """What a rank reduces in each step, by its record."""
    if any(_bytes(each) >= policy.BUCKET_BYTES_LEAST for each in dump.entries if each.operation in SHARDED):
        return StepReductions(rank, generation, reason="its parameters are sharded: there are no buckets")
    calls = [(each.group, each.operation, _bytes(each)) for each in dump.entries if each.transfer is None]
    length = _round(calls)
    if not length:
        return StepReductions(rank, generation, reason=f"its {len(calls)} newest calls repeat no sequence")
    large = [size for _, operation, size in calls[-length:] if operation == "all_reduce"]
    large = [size for size in large if size >= policy.BUCKET_BYTES_LEAST]
    return StepReductions(rank, generation, tuple(large), length)


def _round(calls: Sequence[tuple[str, str, int]]) -> int:
    """How many calls a step has; 0: they do not repeat."""
    for length in range(1, len(calls) // ROUNDS + 1):
        newest = calls[-length:]
        if all(calls[-length * (each + 1) : -length * each] == newest for each in range(1, ROUNDS)):
            return length
    return 0


def _bytes(entry: FlightEntry) -> int:
    """The size of an operation's inputs; 0: of a type that gradients do not have."""
    total = 0
    for sizes, dtype in zip(entry.input_sizes, entry.input_dtypes, strict=False):
        total += math.prod(sizes) * DTYPE_BYTES.get(dtype, 0)
    return total
