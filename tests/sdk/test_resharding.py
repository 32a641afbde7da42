"""A checkpoint of one layout restored by ranks of another: everyone reads what it holds from the storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agent.checkpoint import save
from agent.checkpoint.store import Store
from agent.sdk import resharding
from tests.sdk.node import Node

if TYPE_CHECKING:
    from agent.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("sharded.py")


def commit(node: Node, url: str, step: int) -> str:
    """Make the ranks' snapshots of `step` a checkpoint; its id."""
    store = Store.open(url)
    parts, versions = [], tuple((rank, step) for rank in range(node.world_size))
    what: dict[str, Any] = {"store": store, "job": "job", "checkpoint": f"{step}-1", "step": step}
    what |= {"generation": 1, "kind": "full", "base": f"{step}-1", "versions": versions}
    for rank in range(node.world_size):
        member = node.seat(rank)
        assert member.arena is not None
        slot = member.arena.find(step)
        assert slot is not None
        with member.arena.pinned(slot):
            parts.append(save.persist_part(slot, rank=rank, shard=member.shard, member=member.name, **what))
    done = save.seal(parts=parts, **what)
    save.publish(store, "job", f"{step}-1", done.digest)
    return f"{step}-1"


class Resuming(Node):
    """Begins from a checkpoint of another world size."""

    url = checkpoint = ""

    def resume(self, seats: list[str]) -> Message:
        where = {"reshard": True, "storage": self.url, "job": "job", "checkpoint": self.checkpoint}
        return {"tier": "checkpoint", "step": 12, "rank": 0, "member": "", **where}


def test_saved_on_two_ranks_restored_on_three(zygote: Zygote, tmp_path: Path) -> None:
    with Node(zygote, SCRIPT, 2, WHOLE="1") as node:
        node.run(lambda: all(m.snapshot[1] == 12 for m in node.members.values()), timeout_s=60)
        checkpoint = commit(node, f"file://{tmp_path}", 12)
        node.run(timeout_s=60)
        (before,) = {tuple(line["whole"]) for line in node.results()}
    with Resuming(zygote, SCRIPT, 3, WHOLE="1") as later:
        later.url, later.checkpoint = f"file://{tmp_path}", checkpoint
        later.run(timeout_s=60)
        assert {tuple(line["whole"]) for line in later.results()} == {before}


def test_an_optimizers_state_is_made_without_a_trace() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5, weight_decay=0.1)
    seen: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(1))
    model(torch.ones(1, 3)).sum().backward()
    before = [(p.detach().clone(), p.grad) for p in model.parameters()]
    resharding.materialise(optimizer)
    assert not seen and optimizer.param_groups[0]["lr"] == 0.5
    for parameter, (value, gradient) in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value) and parameter.grad is gradient
        assert not optimizer.state[parameter]["exp_avg"].any()
