"""A mixture of experts: plain modules, a different one on each rank, reached by all-to-all.

With `--copies` there are two experts, each on two ranks. Loses up to --snapshot-every steps on a kill,
because no other rank holds the dead rank's expert; nothing with --copies, while the other copy lives. State
that differs by rank must be declared: see the calls of `track`.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/moe.py
    torchrun --nproc-per-node 4 examples/workloads/moe.py --reference
"""

from __future__ import annotations

from typing import Any

import material
import torch
import torch.distributed as dist
from material import CLASSES, GLOBAL_BATCH, SAMPLES, WIDTH, X, Y, average, gradients, mlp
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn.functional import cross_entropy

from holdfast import Session

args = material.arguments(copies={"action": "store_true"})


class Mixture(nn.Module):
    """The part that all ranks share: a body, a router, a head. Expert i is on rank i (of the exchange
    group)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = mlp(out=WIDTH), nn.Linear(WIDTH, CLASSES)
        self.router = nn.Linear(WIDTH, 2 if args.copies else 4)

    def forward(self, rows: torch.Tensor, expert: nn.Module, group: dist.ProcessGroup | None) -> torch.Tensor:
        tokens = self.body(rows)
        weights, chosen = self.router(tokens).softmax(dim=1).max(dim=1)
        order = chosen.argsort(stable=True)
        sent = torch.bincount(chosen, minlength=self.router.out_features)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=group)
        there, back = sent.tolist(), got.tolist()
        mine = all_to_all_single(tokens.new_empty(sum(back), WIDTH), tokens[order], back, there, group=group)
        ours = all_to_all_single(tokens.new_empty(len(rows), WIDTH), expert(mine), there, back, group=group)
        return self.head(tokens + weights[:, None] * ours[order.argsort()])


def build(rank: int) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Mixture()
    torch.manual_seed(100 + (rank % 2 if args.copies else rank))
    expert = mlp(out=WIDTH)
    optimizers = (torch.optim.AdamW(each.parameters(), lr=1e-2) for each in (model, expert))
    return model, expert, *optimizers


def groups() -> tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]:
    """The group in which this rank exchanges tokens, and the group of ranks with the same expert."""
    if not args.copies:
        return None, dist.new_subgroups(1)[0]
    return dist.new_subgroups(2)[0], dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])[0]


def backward(model: nn.Module, expert: nn.Module, rows: torch.Tensor, exchange: tuple[Any, Any]) -> None:
    for parameter in expert.parameters():
        parameter.grad = torch.zeros_like(parameter)  # the expert may get no token in this step
    cross_entropy(model(X[rows], expert, exchange[0]), Y[rows]).backward()
    average(gradients(model))
    average(gradients(expert), exchange[1])


def main() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        exchange = groups()
        model, expert, optimizer, expert_optimizer = build(session.rank)
        session.track(model=model, optimizer=optimizer)
        if args.copies:
            name = f"expert-{session.rank % 2}"
            session.track(shard=name, expert=expert, expert_optimizer=expert_optimizer)
        else:
            session.track(per_rank=True, expert=expert, expert_optimizer=expert_optimizer)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            backward(model, expert, rows, exchange)
            optimizer.step()
            expert_optimizer.step()
            optimizer.zero_grad()
        material.finish(args, session.rank, model=model, expert=expert, o=optimizer, eo=expert_optimizer)

    train()


def reference() -> None:
    rank, exchange = material.begin(), groups()
    model, expert, optimizer, expert_optimizer = build(rank)
    for step in range(args.steps):
        backward(model, expert, material.share(step), exchange)
        optimizer.step()
        expert_optimizer.step()
        optimizer.zero_grad()
    material.finish(args, rank, model=model, expert=expert, o=optimizer, eo=expert_optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
