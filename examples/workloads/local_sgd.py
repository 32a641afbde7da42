"""Local SGD: ranks train apart and average their models every four steps.

With `--outer` (as DiLoCo) an outer optimizer steps towards the average. Loses up to --snapshot-every steps on
a kill: between two averages every rank has a model of its own. This is declared; undeclared it would be
refused (see refused/local_sgd.py).

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/local_sgd.py --outer
    torchrun --nproc-per-node 4 examples/workloads/local_sgd.py --outer --reference
"""

from __future__ import annotations

import copy

import torch
from material import GLOBAL_BATCH, SAMPLES, X, Y, arguments, average, begin, finish, mlp, share
from torch.nn.functional import cross_entropy

from holdfast import Session

EVERY = 4
args = arguments(outer={"action": "store_true"})
model = mlp()
anchor = copy.deepcopy(model)
inner = torch.optim.AdamW(model.parameters(), lr=1e-2)
outer = torch.optim.SGD(anchor.parameters(), lr=0.7, momentum=0.9, nesterov=True)
state = {"model": model, "inner": inner, "anchor": anchor, "outer": outer}


def local_step(rows: torch.Tensor) -> None:
    cross_entropy(model(X[rows]), Y[rows]).backward()
    inner.step()
    inner.zero_grad()


def meet() -> None:
    """Average the models: all ranks have the same one again."""
    average(model.parameters())
    if args.outer:
        for before, now in zip(anchor.parameters(), model.parameters(), strict=True):
            before.grad = before.detach() - now.detach()
        outer.step()
        model.load_state_dict(anchor.state_dict())


def main() -> None:
    session = Session()
    session.track(per_rank=True, model=model, inner=inner)
    session.track(anchor=anchor, outer=outer)

    @session.elastic
    def train() -> None:
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            local_step(rows)
            if step % EVERY == EVERY - 1:
                meet()

    train()
    finish(args, session.rank, **state)


def reference() -> None:
    rank = begin()
    for step in range(args.steps):
        local_step(share(step))
        if step % EVERY == EVERY - 1:
            meet()
    finish(args, rank, **state)


if __name__ == "__main__":
    reference() if args.reference else main()
