"""Pipeline parallel (GPipe or 1F1B, torch.distributed.pipelining), times data parallel.

Loses nothing while another rank with the same stage lives, else up to --snapshot-every steps. The stages are
plain tensors of equal shapes; --pipeline-parallel declares that they differ.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 --pipeline-parallel 2 \\
        examples/workloads/pipeline.py --schedule 1f1b
    torchrun --nproc-per-node 4 examples/workloads/pipeline.py --schedule 1f1b --reference
"""

from __future__ import annotations

from typing import Any

import torch
from material import GLOBAL_BATCH, SAMPLES, X, Y, arguments, average, begin, finish, gradients, mlp, share
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.functional import cross_entropy

from holdfast import Session

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
MICRO, WIDTH = 2, X.shape[1]
args = arguments(schedule={"choices": SCHEDULES, "default": "gpipe"})


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    """This rank's stage, its optimizer, and the schedule that runs it. Both stages have the same shapes."""
    at, of = mesh["pp"].get_local_rank(), mesh["pp"].size()
    torch.manual_seed(at)
    stage = mlp(out=WIDTH)
    place = PipelineStage(stage, at, of, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = SCHEDULES[args.schedule](place, MICRO, loss_fn=cross_entropy)
    return stage, torch.optim.AdamW(stage.parameters(), lr=1e-2), schedule


def run(schedule: Any, mesh: DeviceMesh, rows: torch.Tensor) -> None:
    """Run forward and backward of all micro-batches."""
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
    mesh = init_device_mesh("cpu", (2, 2, 1, 1), mesh_dim_names=("dp", "pp", "cp", "tp"))
    stage, optimizer, schedule = build(mesh)
    for step in range(args.steps):
        run(schedule, mesh, share(step, mesh["dp"].get_local_rank(), 2))
        average(gradients(stage), mesh["dp"].get_group())
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, stage=stage, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
