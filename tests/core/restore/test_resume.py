"""Where state comes from: the newest whole step, and of every shard the nearest copy. Pure."""

from __future__ import annotations

import pytest

from controlplane.core.records.copies import Copy
from controlplane.core.records.model import Resume, Source, Tier
from controlplane.core.restore import restore_point


def choose(copies: list[Copy], known_step: int, *shards: str) -> Resume | None:
    found = restore_point.choose(copies, known_step, shards or restore_point.WHOLE)
    return found.resume if found else None


def copy(tier: Tier, step: int, rank: int = 0, shard: str = "all") -> Copy:
    return Copy(tier, step, rank, shard, member=f"j.{rank}", checkpoint=f"{step}-1")


@pytest.mark.parametrize(
    ("copies", "tier", "step", "rank"),
    [
        ([copy(Tier.DONOR, 7, 2), copy(Tier.DONOR, 8, 3), copy(Tier.MEMORY, 5)], Tier.DONOR, 8, 3),
        ([copy(Tier.DONOR, 5, 2), copy(Tier.MEMORY, 5, 1), copy(Tier.CHECKPOINT, 5)], Tier.DONOR, 5, 2),
        ([copy(Tier.MEMORY, 6, 1), copy(Tier.DONOR, 5, 2)], Tier.MEMORY, 6, 1),
        ([copy(Tier.CHECKPOINT, 9), copy(Tier.MEMORY, 6, 1)], Tier.CHECKPOINT, 9, 0),
        ([copy(Tier.FRESH, 0, 1), copy(Tier.CHECKPOINT, 9)], Tier.CHECKPOINT, 9, 0),
        ([copy(Tier.FRESH, 0, 1), copy(Tier.FRESH, 0, 0)], Tier.FRESH, 0, 0),
    ],
)
def test_the_newest_step_and_of_it_the_nearest(copies: list[Copy], tier: Tier, step: int, rank: int) -> None:
    chosen = choose(copies, 9)
    assert chosen is not None
    assert (chosen.tier, chosen.step, chosen.rank) == (tier, step, rank)
    assert chosen.reason


def test_a_step_counts_only_with_every_shard() -> None:
    copies = [
        copy(Tier.DONOR, 9, 0, "left"), copy(Tier.DONOR, 8, 0, "left"), copy(Tier.MEMORY, 8, 1, "right"),
    ]  # fmt: skip
    chosen = choose(copies, 9, "left", "right")
    assert chosen is not None
    assert (chosen.tier, chosen.step) == (Tier.MEMORY, 8)
    assert choose(copies[:1], 9, "left", "right") is None


def test_a_fall_to_the_beginning_is_said() -> None:
    chosen = choose([copy(Tier.FRESH, 0)], 41)
    assert chosen is not None
    assert "41" in chosen.reason
    assert "no copy" in chosen.reason


def of(tier: Tier, step: int, origin: int, rank: int, shard: str = "") -> Copy:
    return Copy(tier, step, rank, shard or f"s{rank}", f"j.{rank}", f"{step}-{origin}", origin)


def test_every_shard_has_its_own_source_and_the_farthest_names_the_whole() -> None:
    copies = [
        of(Tier.MEMORY, 20, 1, 0), of(Tier.MEMORY, 20, 1, 1), of(Tier.DONOR, 23, 1, 0),
        Copy(Tier.PEER, 20, 2, "s2", "j.2", origin=1, node="c", generation=1),
        of(Tier.CHECKPOINT, 10, 1, 0, restore_point.EVERY),
    ]  # fmt: skip
    chosen = choose(copies, 23, "s0", "s1", "s2")
    assert chosen is not None
    assert (chosen.tier, chosen.step, chosen.rank, chosen.born) == (Tier.PEER, 20, 2, 1)
    assert chosen.sources == (
        Source("s0", Tier.MEMORY, 0, "j.0"), Source("s1", Tier.MEMORY, 1, "j.1"), Source("s2", Tier.PEER, 2),
    )  # fmt: skip
    assert "rank 2 from the copy that c keeps of j.2" in chosen.reason
    assert chosen.reason.endswith("no storage touched")


def test_two_states_of_one_step_are_never_mixed() -> None:
    copies = [of(Tier.MEMORY, 20, 1, 0), of(Tier.MEMORY, 20, 3, 1), of(Tier.MEMORY, 10, 1, 0)]
    assert choose(copies, 20, "s0", "s1") is None
    chosen = choose([*copies, of(Tier.MEMORY, 10, 1, 1)], 20, "s0", "s1")
    assert chosen is not None
    assert (chosen.step, chosen.born) == (10, 1)


def test_a_checkpoint_fills_the_gaps_of_its_own_state() -> None:
    copies = [of(Tier.MEMORY, 20, 1, 0), of(Tier.CHECKPOINT, 20, 1, 0, restore_point.EVERY)]
    found = restore_point.choose(copies, 20, ("s0", "s1"), {"s0": 0, "s1": 1})
    assert found is not None
    assert [(c.tier, c.rank, c.shard) for c in found.copies] == [
        (Tier.MEMORY, 0, "s0"), (Tier.CHECKPOINT, 1, "s1"),
    ]  # fmt: skip
    assert found.resume.checkpoint == "20-1"


def test_a_checkpoint_of_another_layout_is_resharded_when_nothing_of_this_one_is_newer() -> None:
    other = of(Tier.CHECKPOINT, 20, 1, 0, restore_point.OTHER)
    chosen = choose([other, of(Tier.MEMORY, 20, 1, 0)], 20, "s0", "s1")
    assert chosen is not None
    assert (chosen.tier, chosen.checkpoint, chosen.reshard, chosen.sources) == (
        Tier.CHECKPOINT, "20-1", True, (),
    )  # fmt: skip
    whole = [other, of(Tier.MEMORY, 20, 1, 0), of(Tier.MEMORY, 20, 1, 1)]
    chosen = choose(whole, 20, "s0", "s1")
    assert chosen is not None
    assert (chosen.tier, chosen.reshard) == (Tier.MEMORY, False)


def test_many_shards_are_counted_not_named() -> None:
    shards = [f"s{rank}" for rank in range(1024)]
    chosen = choose([of(Tier.MEMORY, 8, 1, rank) for rank in range(1024)], 9, *shards)
    assert chosen is not None
    assert "1024 shards from snapshots in memory" in chosen.reason
    assert len(chosen.reason) < 200
