"""A checkpoint of one layout restored by ranks of another: everyone reads what it holds from the storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from holdfast.agreement import resharding
from holdfast.checkpoint import save
from holdfast.checkpoint.storage.store import Store
from holdfast.errors import RestoreError
from holdfast.ipc.arena import Arena
from holdfast.ipc.formation import Resume
from holdfast.snapshots.snapshot import SnapshotWriter
from holdfast.state.tracked import TrackedState
from tests.sdk.node import Node

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "sharded.py"
OWNED = Path(__file__).parents[1] / "owned.py"


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
    done = save.finalize(parts=parts, **what)
    save.publish(store, "job", f"{step}-1", done.digest)
    return f"{step}-1"


class Resuming(Node):
    """Begins from a checkpoint of another world size."""

    url = checkpoint = ""

    def resume(self, seats: list[str]) -> Message:
        where = {"reshard": True, "storage": self.url, "job": "job", "checkpoint": self.checkpoint}
        step = int(self.checkpoint.partition("-")[0])
        return {"tier": "checkpoint", "step": step, "rank": 0, "member": "", **where}


def test_saved_on_two_ranks_restored_on_three(zygote: Zygote, tmp_path: Path) -> None:
    with Node(zygote, SCRIPT, 2, WHOLE="10") as node:
        node.run(lambda: all(m.snapshot[1] >= 10 for m in node.members.values()), timeout_s=120)
        checkpoint = commit(node, f"file://{tmp_path}", 10)
        node.run(timeout_s=120)
        (before,) = {tuple(line["whole"]) for line in node.results()}
    assert len(before) == 3
    with Resuming(zygote, SCRIPT, 3, WHOLE="10") as later:
        later.url, later.checkpoint = f"file://{tmp_path}", checkpoint
        later.run(timeout_s=120)
        assert {tuple(line["whole"]) for line in later.results()} == {before}


def test_a_function_that_was_over_when_the_checkpoint_was_made_is_not_trained_again(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Another number of ranks says of it what those of before have kept."""
    with Node(zygote, SCRIPT, 2) as node:
        node.run(lambda: all(m.snapshot[1] == 12 for m in node.members.values()), timeout_s=120)
        checkpoint = commit(node, f"file://{tmp_path}", 12)
        node.run(timeout_s=120)
    with Resuming(zygote, SCRIPT, 3) as later:
        later.url, later.checkpoint = f"file://{tmp_path}", checkpoint
        first = list(later.members.values())
        later.run(lambda: all(zygote.poll(member.pid) is not None for member in first), timeout_s=120)
        told = [member.log.read_text() for member in first]
        assert all("train has ended, and this process, which joined the job later" in log for log in told), (
            told
        )
        assert all("it differed between ranks" in log for log in told)


def saved_locally(zygote: Zygote, url: str) -> tuple[str, list[str]]:
    """A checkpoint of the end of a training whose ranks hold each their own; their digests."""
    with Node(zygote, OWNED, 2, KIND="local", STEPS="12") as node:
        node.run(lambda: all(m.snapshot[1] == 12 for m in node.members.values()))
        checkpoint = commit(node, url, 12)
        node.run()
        return checkpoint, [line["digest"] for line in node.results()]


def test_each_rank_finds_its_own_in_a_checkpoint_of_as_many(zygote: Zygote, tmp_path: Path) -> None:
    checkpoint, before = saved_locally(zygote, f"file://{tmp_path}")
    assert len(set(before)) == 2
    with Resuming(zygote, OWNED, 2, KIND="local", STEPS="12") as later:
        later.url, later.checkpoint = f"file://{tmp_path}", checkpoint
        later.run()
        assert [line["digest"] for line in later.results()] == before


def test_what_is_each_ranks_own_is_refused_on_another_number_of_ranks(zygote: Zygote, tmp_path: Path) -> None:
    checkpoint, _ = saved_locally(zygote, f"file://{tmp_path}")
    with Resuming(zygote, OWNED, 3, KIND="local", STEPS="12") as later:
        later.url, later.checkpoint = f"file://{tmp_path}", checkpoint
        first = list(later.members.values())
        later.run(lambda: all(zygote.poll(member.pid) is not None for member in first))
        last = [member.log.read_text().strip().splitlines()[-1] for member in first]
        assert all("SessionError" in line and "model, optimizer: state that is not" in line for line in last)


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


class Tied(torch.nn.Module):
    """One tensor under two names."""

    def __init__(self, seed: int, *, tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table, self.head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", self.head(self.table(words)))


def trained(seed: int, *, tied: bool = True) -> tuple[Tied, TrackedState]:
    """A model and its optimizer after one step of its own, tracked."""
    model, tracked = Tied(seed, tied=tied), TrackedState()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    return model, tracked


def saved(tracked: TrackedState, url: str, arena: Path) -> str:
    """A checkpoint of it; the manifest's digest."""
    snapshots, store = SnapshotWriter(tracked), Store.open(url)
    with Arena.create(arena, snapshots.needs()) as place:
        snapshots.attach(str(arena))
        snapshots.write(5, 1, 0)
        snapshots.detach()
        slot = place.find(5)
        assert slot is not None
        what: dict[str, Any] = {"job": "job", "checkpoint": "5-1", "step": 5, "generation": 1}
        what |= {"kind": "full", "base": "5-1", "versions": ((0, 5),)}
        part = save.persist_part(slot, store=store, **what)
        done = save.finalize(store, parts=(part,), **what)
    save.publish(store, "job", "5-1", done.digest)
    return done.digest


def resume(url: str, digest: str = "") -> Resume:
    where: dict[str, Any] = {"storage": url, "job": "job", "checkpoint": "5-1"}
    return Resume("checkpoint", 5, 0, reshard=True, digest=digest, **where)


def test_tied_weights_stay_tied_and_are_filled_once(tmp_path: Path) -> None:
    first, tracked = trained(1)
    digest = saved(tracked, f"file://{tmp_path}/s", tmp_path / "a")
    second, other = trained(2)
    kept = second.table.weight
    resharding.load(other, resume(f"file://{tmp_path}/s", digest))
    assert second.head.weight is second.table.weight is kept
    assert torch.equal(kept, first.table.weight)
    mine, theirs = tracked.flatten(), other.flatten()
    assert mine.names == theirs.names
    assert all(map(torch.equal, mine.tensors, theirs.tensors))


def test_a_model_whose_weights_are_not_tied_is_another_one(tmp_path: Path) -> None:
    _, tracked = trained(1)
    digest = saved(tracked, f"file://{tmp_path}/s", tmp_path / "a")
    _, other = trained(2, tied=False)
    with pytest.raises(
        RestoreError, match=r"optimizer: this optimizer has model\.head\.weight, which no group"
    ):
        resharding.load(other, resume(f"file://{tmp_path}/s", digest))


def layers(*, bias: bool = True) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2, bias=bias))


def kept(model: Any, optimizer: torch.optim.Optimizer) -> TrackedState:
    tracked = TrackedState()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    return tracked


def test_groups_and_modes_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    source, target = layers(), layers()
    moving = torch.optim.Adam(source[0].parameters(), lr=0.1)
    moving.add_param_group({"params": list(source[1].parameters()), "lr": 0.5})
    source(torch.randn(4, 2)).sum().backward()
    moving.step()
    source[0].requires_grad_(False)
    source[1].eval()
    digest = saved(kept(source, moving), f"file://{tmp_path}/s", tmp_path / "a")
    taking = torch.optim.Adam(target[0].parameters(), lr=0.1)
    resharding.load(kept(target, taking), resume(f"file://{tmp_path}/s", digest))
    assert [group["lr"] for group in taking.param_groups] == [0.1, 0.5]
    assert not target[0].weight.requires_grad and target[0].training and not target[1].training
    for own, theirs in zip(source.parameters(), target.parameters(), strict=True):
        assert torch.equal(own, theirs)
        assert torch.equal(moving.state[own]["exp_avg"], taking.state[theirs]["exp_avg"])


def test_a_checkpoint_with_more_tensors_than_the_model_is_refused(tmp_path: Path) -> None:
    source, target = layers(), layers(bias=False)
    given = kept(source, torch.optim.SGD(source[0].parameters()))
    digest = saved(given, f"file://{tmp_path}/s", tmp_path / "a")
    with pytest.raises(RestoreError, match=r"the state has model\.state\.1\.bias"):
        taking = kept(target, torch.optim.SGD(target[0].parameters()))
        resharding.load(taking, resume(f"file://{tmp_path}/s", digest))


def test_another_state_under_the_id_is_noticed(tmp_path: Path) -> None:
    """The name on the storage is the same, what etcd committed was another's."""
    first, tracked = trained(1)
    digest = saved(tracked, f"file://{tmp_path}/s", tmp_path / "a")
    saved(trained(2)[1], f"file://{tmp_path}/t", tmp_path / "b")
    with pytest.raises(RestoreError, match=f"the commit record says {digest}"):
        resharding.load(tracked, resume(f"file://{tmp_path}/t", digest))
    before = first.table.weight.detach().clone()
    resharding.load(tracked, resume(f"file://{tmp_path}/s", digest))
    assert torch.equal(first.table.weight, before)
