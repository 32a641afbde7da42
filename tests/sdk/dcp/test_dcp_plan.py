"""Who writes what: every element once, in equal shares, whatever is held by whom."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from holdfast.dcp import plan as dcp_plan


def replicated(shapes: dict[str, tuple[int, ...]], ranks: int) -> list[SavePlan]:
    """What torch's planner leaves of a state that every rank holds: all of it with rank 0."""
    state = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    plan = create_default_local_save_plan(state, is_coordinator=True)
    held = dcp_plan.held(plan)
    return [SavePlan(plan.items if rank == 0 else [], held) for rank in range(ranks)]


def loads(assigned: list[dcp_plan.Assignment]) -> list[int]:
    return [sum(portion.nbytes for portion in own.portions) for own in assigned]


def covered(assigned: list[dcp_plan.Assignment]) -> dict[str, int]:
    """Elements of each tensor; fails when a row is written twice."""
    rows: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for portion in itertools.chain.from_iterable(own.portions for own in assigned):
        name, mine = portion.item.index.fqn, set(range(portion.start, portion.stop))
        assert not mine & rows.setdefault(name, set()), f"rows of {name} twice"
        rows[name] |= mine
        counts[name] = counts.get(name, 0) + math.prod(portion.sizes)
    return counts


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "gpt": {f"{layer}.{name}": shape for layer in range(12) for name, shape in {
        "qkv": (2304, 768), "out": (768, 768), "up": (3072, 768), "down": (768, 3072), "norm": (768,),
        "step": (),
    }.items()} | {"embedding": (50257, 768)},
    "one large": {"embedding": (1_000_000, 64)},
    "batch of one": {"first": (1, 1, 40_000, 300), "empty": (0, 7)},
}  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_replicas_write_equal_shares(shapes: dict[str, tuple[int, ...]], ranks: int) -> None:
    assigned = dcp_plan.assign(replicated(shapes, ranks))
    assert covered(assigned) == {name: math.prod(shape) for name, shape in shapes.items()}
    bytes_of = loads(assigned)
    writers = max(1, min(ranks, -(-sum(bytes_of) // dcp_plan.SHARE_BYTES_MIN)))
    assert max(bytes_of) <= 1.1 * sum(bytes_of) / writers


def test_a_small_state_has_one_writer() -> None:
    assigned = dcp_plan.assign(replicated({"a": (100, 10), "b": (3,)}, 8))
    assert sorted(loads(assigned)) == [0] * 7 + [4012]


def test_what_was_only_one_ranks_counts_as_its_load() -> None:
    """Two groups of replicas, as hybrid sharding has them, and one rank that has more of its own."""
    plans = []
    for rank in range(4):
        half, own = rank % 2, 6_000_000 if rank == 0 else 0
        items = [sharded("weight", (2_000_000 * half, 0), (2_000_000, 4))]
        if own:
            items.append(sharded("extra", (0,), (own,), size=(own,)))
        held = dcp_plan.held(SavePlan(items))
        plans.append(SavePlan(items if rank < 2 else [], held))
    assigned = dcp_plan.assign(plans)
    bytes_of = loads(assigned)
    assert sum(bytes_of) == 2 * 32_000_000 + 24_000_000
    assert bytes_of[0] == pytest.approx(bytes_of[2], rel=0.01)
    assert bytes_of[1] == pytest.approx(bytes_of[3], rel=0.01)
    for portion in itertools.chain.from_iterable(each.portions for each in assigned):
        begin = portion.item.index.offset
        assert begin is not None
        assert portion.offsets[0] == begin[0] + portion.start


def test_the_same_plans_are_assigned_alike() -> None:
    once, again = (dcp_plan.assign(replicated(SHAPES["gpt"], 7)) for _ in range(2))
    assert once == again


def sharded(
    name: str, offset: tuple[int, ...], sizes: tuple[int, ...], size: tuple[int, ...] = (4_000_000, 4)
) -> WriteItem:
    data = TensorWriteData(
        ChunkStorageMetadata(torch.Size(offset), torch.Size(sizes)),
        TensorProperties(torch.float32),
        torch.Size(size),
    )
    return WriteItem(MetadataIndex(name, offset), WriteItemType.SHARD, tensor_data=data)
