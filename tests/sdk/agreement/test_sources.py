"""State that several ranks give: shares of its bytes, and shards that a rank reads for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotWriter
from tests.sdk.node import Node

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "train.py"
SHARDED = Path(__file__).parents[1] / "sharded.py"


class Sharing(Node):
    """Every rank has died: two of the new ones get half of the bytes each."""

    shares = 2

    def resume(self, seats: list[str]) -> Message:
        found = super().resume(seats)
        if found["tier"] != "memory":
            return found
        with Arena.open(found["arena"]) as whole:
            slot = whole.find(found["step"])
            assert slot is not None
            for share, name in enumerate(seats[: self.shares]):
                member = self.members[name]
                member.arena = Arena.create(self.shm / f"{name}.arena", whole.slot_bytes)
                writer = member.arena.begin(slot.step, slot.generation, released_step=-1)
                assert isinstance(writer, SlotWriter)
                start, end = layout.share_range(slot.data_bytes, share, self.shares)
                writer.memory[start:end] = slot.memory[start:end]
                writer.layout(slot.header, slot.data_bytes)
                writer.partial()
        sources = [
            {"shard": "all", "tier": "checkpoint", "rank": rank, "share": rank, "shares": self.shares}
            | {"member": name, "arena": str(self.shm / f"{name}.arena")}
            for rank, name in enumerate(seats[: self.shares])
        ]
        return {"tier": "checkpoint", "step": found["step"], "rank": 0, "sources": sources}


def digests(node: Node) -> list[Any]:
    node.run(timeout_s=120)
    return [line["digest"] for line in node.results()]


def test_a_checkpoint_read_in_shares(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 3) as node:
        whole = digests(node)
    kills = [{"rank": rank, "step": 7, "phase": "forward"} for rank in range(3)]
    tier = ""
    for _ in range(
        4
    ):  # a rank that hears of another's end before its own comes to the barrier and gives its state
        with Sharing(zygote, SCRIPT, 3, KILL=json.dumps(kills)) as node:
            assert digests(node) == whole
            tier = node.generations[-1]["resume"]["tier"]
        if tier == "checkpoint":
            break
    assert tier == "checkpoint"


class Reading(Node):
    """The dead rank's shard is read by rank 0, which holds another."""

    def resume(self, seats: list[str]) -> Message:
        found = super().resume(seats)
        for source in found.get("sources", ()):
            if source["shard"] == self.shards[1]:
                source["rank"] = 0
        return found


def test_a_rank_reads_a_shard_that_is_not_its_own(zygote: Zygote) -> None:
    with Node(zygote, SHARDED, 2) as node:
        whole = digests(node)
    kill = [{"rank": 1, "step": 7, "phase": "forward"}]
    with Reading(zygote, SHARDED, 2, KILL=json.dumps(kill)) as node:
        assert digests(node) == whole
        assert {source["rank"] for source in node.generations[-1]["resume"]["sources"]} == {0}
