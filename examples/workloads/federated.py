"""Federated averaging: each rank is a client that trains on its own samples from the server's model.

After four steps the server's model becomes the average of the clients' models, weighted by their samples.
Loses up to --snapshot-every steps on a kill: between two averages no other rank has the client's model. That
model differs by rank, and is declared so; the server's model is the same everywhere.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/federated.py
    torchrun --nproc-per-node 4 examples/workloads/federated.py --reference
"""

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, SAMPLES, X, Y, arguments, average, begin, finish, mlp, share
from torch.nn.functional import cross_entropy

from holdfast import Session

ROUND, WEIGHTS = 4, (0.125, 0.25, 0.25, 0.375)
args = arguments()
server, client = mlp(), mlp()
client.load_state_dict(server.state_dict())
optimizer = torch.optim.SGD(client.parameters(), lr=0.1, momentum=0.9)
state = {"server": server, "client": client, "optimizer": optimizer}


def local_step(rows: torch.Tensor) -> None:
    cross_entropy(client(X[rows]), Y[rows]).backward()
    optimizer.step()
    optimizer.zero_grad()


def combine(rank: int) -> None:
    """End a round: the server's model becomes the average, and every client gets it."""
    server.load_state_dict(client.state_dict())
    average(server.parameters(), weight=WEIGHTS[rank])
    client.load_state_dict(server.state_dict())


def main() -> None:
    session = Session()
    session.track(server=server)
    session.track(per_rank=True, client=client, optimizer=optimizer)

    @session.elastic
    def train() -> None:
        for step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            local_step(rows)
            if step % ROUND == ROUND - 1:
                combine(session.rank)

    train()
    finish(args, session.rank, **state)


def reference() -> None:
    rank = begin()
    for step in range(args.steps):
        local_step(share(step))
        if step % ROUND == ROUND - 1:
            combine(rank)
    finish(args, rank, **state)


if __name__ == "__main__":
    reference() if args.reference else main()
