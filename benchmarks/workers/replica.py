# mypy: ignore-errors
"""One replica group of torchft: world size 1, its own store, one flat all-reduce per step.

The DDP wrapper of torchft 0.2.0 dies on the first gloo error, so the gradients are reduced by hand. This runs
in torchft's own virtual environment, which is why its types are not checked here. `RANK`, `LOGS` and
`TORCHFT_LIGHTHOUSE` come from the environment."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchft import Manager, Optimizer, ProcessGroupGloo

from benchmarks.log import EventLog
from benchmarks.workers import model as workload

RANK = int(os.environ["RANK"])
log = EventLog(Path(os.environ["LOGS"]), rank=RANK)
TIMEOUT = timedelta(seconds=60)


def main() -> None:
    """Train until killed."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model, inner = workload.build()

    def load(state: dict) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        timeout=TIMEOUT,
        quorum_timeout=TIMEOUT,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=os.environ["TORCHFT_LIGHTHOUSE"],
        replica_id=f"r{RANK}",
        hostname="127.0.0.1",
    )
    optimizer = Optimizer(manager, inner)
    generator = torch.Generator().manual_seed(RANK)
    while True:
        _step(manager, model, optimizer, generator)


def _step(manager: Manager, model: torch.nn.Module, optimizer: Optimizer, generator: torch.Generator) -> None:
    optimizer.zero_grad()
    workload.loss_of(model, generator).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat).wait()
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
    optimizer.step()
    committed = manager._commit_failures == 0
    log(
        "step" if committed else "discarded",
        step=manager.current_step(),
        quorum=manager._quorum_id,
        world=manager.num_participants(),
    )


main()
