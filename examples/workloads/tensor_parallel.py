"""Tensor parallel (DTensor, parallelize_module) over the ranks of a node, data parallel over the nodes.

Loses nothing while another rank with the same shard lives (here one on the other node), else up to
--snapshot-every steps.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 --tensor-parallel 2 examples/workloads/tensor_parallel.py
    torchrun --nproc-per-node 4 examples/workloads/tensor_parallel.py --reference
"""  # noqa: E501

from __future__ import annotations

import torch
from material import GLOBAL_BATCH, SAMPLES, X, Y, arguments, average, begin, finish, gradients, mlp, share
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from holdfast import Session

args = arguments()


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = parallelize_module(mlp(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def main() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        mesh = session.mesh()
        model, optimizer = build(mesh)
        session.track(model=model, optimizer=optimizer)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            cross_entropy(model(X[rows]), Y[rows]).backward()
            average(gradients(model), mesh["dp"].get_group())
            optimizer.step()
            optimizer.zero_grad()
        finish(args, session.rank, model=model, optimizer=optimizer)

    train()


def reference() -> None:
    rank = begin()
    mesh = init_device_mesh("cpu", (2, 1, 1, 2), mesh_dim_names=("dp", "pp", "cp", "tp"))
    model, optimizer = build(mesh)
    for step in range(args.steps):
        rows = share(step, mesh["dp"].get_local_rank(), 2)
        cross_entropy(model(X[rows]), Y[rows]).backward()
        average(gradients(model), mesh["dp"].get_group())
        optimizer.step()
        optimizer.zero_grad()
    finish(args, rank, model=model, optimizer=optimizer)


if __name__ == "__main__":
    reference() if args.reference else main()
