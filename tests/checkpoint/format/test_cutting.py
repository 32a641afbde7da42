"""The plan of chunks: everything once, and every writer gets its part."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from holdfast.checkpoint.format import cutting
from holdfast.ipc import layout
from holdfast.ipc.layout import SMALL_BYTES, Tensor, share_range

MIB = 1 << 20


def placed(sizes: list[int]) -> tuple[Tensor, ...]:
    return layout.place((f"t{number}", "uint8", (size,), size) for number, size in enumerate(sizes))[0]


def mixed(seed: int) -> list[int]:
    source = random.Random(seed)
    return [int(2 ** source.uniform(0, 28)) for _ in range(source.randrange(20, 200))] + [256 * MIB]


LAYOUTS = {
    "one huge": [2000 * MIB + 77],
    "thousands of tiny": [20_000 + number % 997 for number in range(5_000)],
    "an embedding and layers": [512 * MIB, *([16 * MIB, 4096] * 24)],
    "just above small": [SMALL_BYTES + 1] * 5000,
    "just above a chunk": [8 * MIB + 1] * 100,
    "scalars beside one": [8] * 3000 + [700 * MIB],
    **{f"mixed {seed}": mixed(seed) for seed in range(10)},
}


@pytest.mark.parametrize("shares", [1, 3, 16, 31, 64])
@pytest.mark.parametrize("what", LAYOUTS)
def test_balanced_within_a_tenth_and_every_byte_once(what: str, shares: int) -> None:
    tensors = placed(LAYOUTS[what])
    plan = cutting.plan(tensors, shares)
    sizes = [sum(cut.nbytes for cut in cuts) for cuts in plan]
    total = sum(tensor.nbytes for tensor in tensors)
    assert sum(sizes) == total
    assert max(sizes) <= 1.1 * total / shares
    ends = [0] * len(tensors)
    for tensor, start, offset, nbytes in sorted(s for cuts in plan for cut in cuts for s in cut.spans):
        assert (start, offset) == (ends[tensor], tensors[tensor].offset + start)
        ends[tensor] += nbytes
    assert ends == [tensor.nbytes for tensor in tensors]


def test_chunks_are_powers_of_two_and_packs_small() -> None:
    for shares in (1, 7, 64):
        plan = cutting.plan(placed(LAYOUTS["an embedding and layers"]), shares)
        size = cutting.chunk_bytes(sum(LAYOUTS["an embedding and layers"]), shares)
        assert size & (size - 1) == 0
        assert SMALL_BYTES <= size <= 8 * MIB
        assert {cut.nbytes for cuts in plan for cut in cuts if len(cut.spans) == 1} == {size}
        assert all(cut.nbytes <= MIB for cuts in plan for cut in cuts if len(cut.spans) > 1)


def test_one_writer_has_chunks_of_8_mib_however_small_the_state() -> None:
    assert cutting.chunk_bytes(1, 1) == 8 * MIB


def test_a_state_of_nothing() -> None:
    assert cutting.plan((), 3) == ((), (), ())
    assert cutting.plan(placed([0, 0]), 2) == ((), ())


def test_the_same_for_everyone_and_planned_once() -> None:
    sizes = LAYOUTS["mixed 3"]
    one, other = cutting.plan(placed(sizes), 16), cutting.plan(placed(list(sizes)), 16)
    assert one is other
    elsewhere = [8, *sizes]
    assert cutting.plan(placed(elsewhere), 16) != one


def test_a_thousand_tensors_are_planned_in_no_time_when_nothing_changed() -> None:
    tensors = placed([100_000 + number for number in range(1024)])
    cutting.plan(tensors, 64)
    begun_s = time.process_time()
    for _ in range(100):
        cutting.plan(tensors, 64)
    assert time.process_time() - begun_s < 2.0


@pytest.mark.parametrize("data_bytes", [0, 1, 4096, 4097, 1_000_000, 3 << 30])
@pytest.mark.parametrize("shares", [1, 2, 7, 64])
def test_shares_to_load_are_pages_and_together_everything(data_bytes: int, shares: int) -> None:
    ranges = [share_range(data_bytes, share, shares) for share in range(shares)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == data_bytes
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert all(start % 4096 == 0 or start == data_bytes for start, _ in ranges)
    with pytest.raises(layout.SlotLayoutError, match="does not exist"):
        share_range(data_bytes, shares, shares)
