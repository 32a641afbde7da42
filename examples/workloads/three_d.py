"""Tensor, pipeline and data parallel at once, on eight ranks.

Loses nothing while another rank with the same shard of the same stage lives, else up to --snapshot-every
steps.

    holdfast run --nnodes 2 --nproc-per-node 4 --spares 1 --tensor-parallel 2 --pipeline-parallel 2 \\
        examples/workloads/three_d.py
    torchrun --nproc-per-node 8 examples/workloads/three_d.py --reference
"""

from __future__ import annotations

from typing import Any

import torch
from material import GLOBAL_BATCH, SAMPLES, X, Y, arguments, average, begin, finish, gradients, mlp, share
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from holdfast import Session

MICRO, WIDTH = 2, X.shape[1]
args = arguments()


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    at, of = mesh["pp"].get_local_rank(), mesh["pp"].size()
    torch.manual_seed(at)
    stage = parallelize_module(mlp(out=WIDTH), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    place = PipelineStage(stage, at, of, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(place, MICRO, loss_fn=cross_entropy)
    return stage, torch.optim.AdamW(stage.parameters(), lr=1e-2), schedule


def run(schedule: Any, mesh: DeviceMesh, rows: torch.Tensor) -> None:
    at, last = mesh["pp"].get_local_rank(), mesh["pp"].size() - 1
    schedule.step(*[X[rows]] if at == 0 else [], **{"target": Y[rows]} if at == last else {})


def main() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        mesh = session.mesh()
        stage, optimizer, schedule = build(mesh)
        session.track(stage=stage, optimizer=optimizer)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            run(schedule, mesh, rows)
            average(gradients(stage), mesh["dp"].get_group())
            optimizer.step()
            optimizer.zero_grad()
        finish(args, session.rank, stage=stage, optimizer=optimizer)

    train()


def reference() -> None:
    rank = begin()
    mesh = init_device_mesh("cpu", (2, 2, 1, 2), mesh_dim_names=("dp", "pp", "cp", "tp"))
    stage, optimizer, schedule = build(mesh)
    for step in range(args.steps):
        run(schedule, mesh, share(step, mesh["dp"].get_local_rank(), 2))
        average(gradients(stage), mesh["dp"].get_group())
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, stage=stage, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
