"""Read from a rank's flight record which all-reduces of gradients it calls in each step. Pure.

A record has the operations of the newest steps with the sizes of their tensors, in the order of the calls.
Steps repeat: the shortest sequence of large all-reduces that came three times at the end is what a step
calls, or a part of it, where buckets are alike: how often it comes, their times say. Small ones are left out:
scripts sum losses and flags, now and then only. How long an operation took is not in a record: gloo notes no
end, and NCCL one that is looked for at intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.proposals import policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.records import FlightDump, FlightEntry

ROUNDS = 3
"""A sequence counts when the newest calls are this many of it."""
DTYPE_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Double": 8}
"""Bytes of one number of the types that gradients have, by torch's names."""
SHARDED = frozenset(
    ("all_gather", "_all_gather_base", "all_gather_into_tensor", "reduce_scatter", "_reduce_scatter_base")
)
"""A job that calls these with large tensors shards its parameters, and has no buckets."""


@dataclass(frozen=True, slots=True)
class RepeatedReductions:
    """The large all-reduces that a rank calls again and again: their sizes, and after how long (s) the same
    sequence comes again. `reason`: why they are not known; "": they are."""

    rank: int
    generation: int
    bytes_each: tuple[int, ...] = ()
    every_s: float = 0.0
    reason: str = ""


def of_record(rank: int, generation: int, dump: FlightDump) -> RepeatedReductions:
    """What a rank reduces again and again, by its record."""
    large = [each for each in dump.entries if _bytes(each) >= policy.BUCKET_BYTES_LEAST]
    if any(each.operation in SHARDED for each in large):
        return RepeatedReductions(rank, generation, reason="its parameters are sharded: there are no buckets")
    reductions = [each for each in large if each.operation == "all_reduce"]
    if not reductions:
        return RepeatedReductions(rank, generation, reason="it calls no all-reduce as large as gradients")
    sizes = [(each.group, _bytes(each)) for each in reductions]
    length = _round(sizes)
    if not length:
        known = f"its {len(sizes)} newest large all-reduces repeat no sequence"
        return RepeatedReductions(rank, generation, reason=known)
    span_ns = reductions[-1].created_ns - reductions[-1 - (ROUNDS - 1) * length].created_ns
    each_s = span_ns / 1e9 / (ROUNDS - 1)
    return RepeatedReductions(rank, generation, tuple(size for _, size in sizes[-length:]), each_s)


def _round(calls: Sequence[tuple[str, int]]) -> int:
    """The length of the shortest sequence that the newest calls repeat; 0: there is none."""
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
