"""Many writers: each makes its part durable, and only parts that cover everything become a checkpoint."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused
from holdfast.checkpoint.format import names, typed
from holdfast.checkpoint.load import listing, load, read_manifest, verify
from holdfast.checkpoint.save import finalize, publish
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState, SlotWriter
from tests.checkpoint.states import JOB, Order, arena_for, content, nbytes, save_part, snapshot, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from controlplane.core.records.model import CheckpointPart
    from holdfast.ipc.arena import SlotView
    from tests.checkpoint.states import Shapes

SHAPES: Shapes = [
    ("w", "bfloat16", (1 << 20,)),
    ("empty", "float32", (0, 3)),
    ("v", "float32", (200_000,)),
    *((f"b{number}", "float32", (1000 + number,)) for number in range(80)),
]
SHARES = 4


@pytest.fixture
def slots(shm: Path) -> Iterator[list[SlotView]]:
    """The same state in the arenas of four ranks."""
    with ExitStack() as stack:
        arenas = [stack.enter_context(arena_for(shm / f"{rank}", SHAPES)) for rank in range(SHARES)]
        yield [snapshot(arena, 10, SHAPES, seed=1, state={"epoch": 3}) for arena in arenas]


@pytest.fixture
def order(slots: list[SlotView]) -> Order:
    return Order.of(slots[0], ranks=SHARES)


@pytest.fixture
def parts(folder: Path, slots: list[SlotView], order: Order) -> list[CheckpointPart]:
    """Each written by a process of its own, as it were: nothing is shared but the storage."""
    stores = [Store.open(f"file://{folder}/storage") for _ in slots]
    return [
        save_part(store, slot, order, rank=rank, share=rank, shares=SHARES, member=f"m{rank}")
        for rank, (store, slot) in enumerate(zip(stores, slots, strict=True))
    ]


def test_replicas_write_their_shares_and_together_the_state(
    store: Store, parts: list[CheckpointPart], order: Order, slots: list[SlotView], shm: Path
) -> None:
    total = sum(map(len, content(SHAPES, 1).values()))
    assert sum(part.bytes_total for part in parts) == sum(part.bytes_written for part in parts) == total
    assert max(part.bytes_written for part in parts) <= 1.1 * total / SHARES
    assert [(part.rank, part.share, part.member) for part in parts] == [(r, r, f"m{r}") for r in range(4)]
    result = finalize(store, parts=parts, **order.words)
    assert result.bytes_written == total + len(result.manifest)
    publish(store, JOB, "10-1", result.digest)
    assert store.list("jobs/job/parts") == store.list("jobs/job/pending") == []
    with arena_for(shm / "b", SHAPES) as arena:
        assert load(store, arena, job=JOB, checkpoint="10-1", digest=result.digest) == 10
        back = arena.find(10)
        assert back is not None
        assert back.header == slots[0].header
        assert values_of(back) == content(SHAPES, 1)
    (shard,) = read_manifest(store, JOB, "10-1").shards
    assert (shard.shard, shard.ranks) == ("all", (0, 1, 2, 3))


def test_before_the_seal_and_before_the_commit_nothing_is_listed(
    store: Store, parts: list[CheckpointPart], order: Order
) -> None:
    assert listing(store, JOB) == []
    result = finalize(store, parts=parts, **order.words)
    assert listing(store, JOB) == []
    assert finalize(store, parts=list(reversed(parts)), **order.words).digest == result.digest


@pytest.mark.parametrize("shares", [2, 3, 7])
def test_parallel_load_brings_each_byte_once(
    store: Store, parts: list[CheckpointPart], order: Order, slots: list[SlotView], shm: Path, shares: int
) -> None:
    result = finalize(store, parts=parts, **order.words)
    whole = bytearray(slots[0].data_bytes)
    for share in range(shares):
        with arena_for(shm / "b", SHAPES) as arena:
            where: dict[str, Any] = {"job": JOB, "checkpoint": "10-1", "digest": result.digest}
            assert load(store, arena, **where, share=share, shares=shares) == 10
            assert arena.find(10) is arena.newest() is None
            slot = arena.find_partial(10)
            assert slot is not None
            assert slot.state is SlotState.PARTIAL
            start, end = layout.share_range(slot.data_bytes, share, shares)
            assert slot.memory[:start] == bytes(start)
            assert slot.memory[end:] == bytes(len(slot.memory) - end)
            whole[start:end] = slot.memory[start:end]
            assert slot.header == slots[0].header
            with arena.pinned(slot):
                assert isinstance(arena.begin(11, 1, released_step=-1), SlotWriter)
    tensors, _ = layout.decode(slots[0].header, slots[0].data_bytes)
    for tensor in tensors:
        assert whole[tensor.offset : tensor.offset + tensor.nbytes] == content(SHAPES, 1)[tensor.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts[:3], "lacks share 3"),
        (lambda parts: parts[1:], "lacks share 0"),
        (lambda parts: [parts[0], parts[2], parts[3]], "lacks share 1"),
        (lambda parts: [*parts, parts[2]], "share 2 of 4 of shard all: appears twice"),
        (lambda parts: [*parts[:3], replace(parts[2], share=3)], "is share 2 of 4 of shard all, not share 3"),
        (lambda parts: [*parts[:3], replace(parts[3], shares=5)], "not share 3 of 5"),
        (lambda _: [], "the checkpoint has no parts"),
        (lambda parts: [*parts[:3], replace(parts[3], digest="a" * 64)], f"part {'a' * 64}: is missing"),
        (lambda parts: [*parts[:3], replace(parts[3], digest="../x")], "not a blake3 digest"),
    ],
)
def test_parts_that_do_not_cover_the_state_are_refused(
    store: Store,
    parts: list[CheckpointPart],
    order: Order,
    change: Callable[[list[CheckpointPart]], list[CheckpointPart]],
    message: str,
) -> None:
    with pytest.raises(CheckpointError, match=message):
        finalize(store, parts=change(parts), **order.words)
    assert store.list("jobs/job/pending") == []


def test_parts_of_unequal_layout_are_refused(
    store: Store, parts: list[CheckpointPart], order: Order, shm: Path
) -> None:
    other: Shapes = [("w2" if name == "w" else name, dtype, shape) for name, dtype, shape in SHAPES]
    with arena_for(shm / "other", other) as arena:
        odd = save_part(store, snapshot(arena, 10, other, seed=1), order, rank=3, share=3, shares=SHARES)
    with pytest.raises(CheckpointRefused, match=r"share 3 of 4 of shard all: has another layout.*'w2'"):
        finalize(store, parts=[*parts[:3], odd], **order.words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kind": "incremental", "base": "5-1"}, "its parts belong to"),
        ({"versions": ((0, 10), (1, 10))}, r"parts of ranks \[2, 3\], which are not in its list of versions"),
        ({"versions": ((0, 10), (1, 10), (2, 9), (3, 10))}, "rank 2 is at step 9, not at 10"),
        ({"job": "other"}, "is missing"),
        ({"step": 11, "checkpoint": "11-1", "base": "11-1"}, "is at step 10|is missing"),
    ],
)
def test_parts_of_another_checkpoint_are_refused(
    store: Store, parts: list[CheckpointPart], order: Order, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        finalize(store, parts=parts, **{**order.words, **words})


def test_a_part_under_the_name_of_another_job_or_checkpoint_is_refused(
    store: Store, parts: list[CheckpointPart], order: Order
) -> None:
    for part in parts:
        body = store.read(names.part(JOB, "10-1", part.digest), 1 << 24)
        store.put(names.part("other", "10-1", part.digest), body)
    with pytest.raises(CheckpointRefused, match="belongs to job 'job', not to 'other'"):
        finalize(store, parts=parts, **{**order.words, "job": "other"})


def test_every_byte_of_a_part_flipped_in_turn(
    store: Store, folder: Path, parts: list[CheckpointPart], order: Order
) -> None:
    path = folder / "storage" / names.part(JOB, "10-1", parts[1].digest)
    whole = path.read_bytes()
    for position in random.Random(5).sample(range(len(whole)), 100):
        spoilt = bytearray(whole)
        spoilt[position] ^= 1 << position % 8
        path.write_bytes(spoilt)
        with pytest.raises(CheckpointCorrupt, match="checkpoint 10-1: part"):
            finalize(store, parts=parts, **order.words)
    path.write_bytes(whole)
    finalize(store, parts=parts, **order.words)


@pytest.mark.parametrize("how", ["missing", "short"])
def test_a_chunk_that_is_not_there_whole_stops_the_seal(
    store: Store, folder: Path, parts: list[CheckpointPart], order: Order, how: str
) -> None:
    for path in sorted((folder / "storage/jobs/job/bases/10-1/chunks").rglob("*/*"))[::7]:
        whole = path.read_bytes()
        path.unlink() if how == "missing" else os.truncate(path, len(whole) - 1)
        with pytest.raises(
            CheckpointCorrupt, match=f"chunk {path.name}: (is missing|its file has {len(whole) - 1} by)"
        ):
            finalize(store, parts=parts, **order.words)
        path.write_bytes(whole)
    finalize(store, parts=parts, **order.words)


def piece(arena: Arena, word: str, rows: tuple[int, int]) -> SlotView:
    """Rows [from, to) of a tensor of 8 rows, as one rank of two holds it."""
    shape = (rows[1] - rows[0], 10_000)
    tensors, data_bytes = layout.place([("w", "float32", shape, nbytes("float32", shape))])
    part = replace(tensors[0], global_shape=(8, 10_000), global_offset=(rows[0], 0))
    writer = arena.begin(10, 1, released_step=10)
    assert isinstance(writer, SlotWriter)
    writer.memory[:data_bytes] = random.Random(rows[0]).randbytes(data_bytes)
    writer.layout(layout.encode([part], typed.encode(rows), word), data_bytes)
    return writer.ready()


def test_shards_of_a_larger_state(store: Store, shm: Path) -> None:
    held = {"s0": (0, 4), "s1": (4, 8)}
    with ExitStack() as stack:
        slots = {}
        for word, rows in held.items():
            arena = stack.enter_context(Arena.create(shm / word, 4 * 10_000 * 4 + 200_000))
            slots[word] = piece(arena, word, rows)
        order = Order.of(slots["s0"])
        parts = [
            save_part(store, slot, order, shard=word, rank=rank)
            for rank, (word, slot) in enumerate(slots.items())
        ]
        with pytest.raises(CheckpointError, match="the slot holds shard s1, not s0"):
            save_part(store, slots["s1"], order, shard="s0")
        result = finalize(store, parts=parts, **order.words)
        assert result.shards == ("s0", "s1")
        publish(store, JOB, "10-1", result.digest)
        manifest = verify(store, JOB, "10-1")
        for word, rows in held.items():
            arena = stack.enter_context(Arena.create(shm / f"{word}b", slots[word].arena.slot_bytes))
            load(store, arena, job=JOB, checkpoint="10-1", shard=word)
            back = arena.find(10)
            assert back is not None
            assert (back.header, back.memory) == (slots[word].header, slots[word].memory)
            assert layout.shard(back.header) == word
            (tensor,), state = layout.decode(back.header, back.data_bytes)
            assert (tensor.global_shape, tensor.global_offset) == ((8, 10_000), (rows[0], 0))
            assert typed.decode(state) == rows
        assert [shard.ranks for shard in manifest.shards] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"global_shape": [8]}, "no usable place"),
        ({"global_offset": [0, 0]}, "no usable place"),
        ({"global_shape": [8, 10], "global_offset": [5, 0]}, "is outside"),
        ({"global_shape": [8, 10, 1], "global_offset": [0, 0, 0]}, "no usable place"),
        ({"global_shape": [8, -10], "global_offset": [0, 0]}, "no usable place"),
        ({"global_shape": "ab", "global_offset": [0, 0]}, "no usable place"),
    ],
)
def test_a_place_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    entry = {"name": "w", "dtype": "float32", "shape": [4, 10], "offset": 0, "nbytes": 160}
    with pytest.raises(layout.SlotLayoutError, match=message):
        layout.check([{**entry, **fields}], 160)
