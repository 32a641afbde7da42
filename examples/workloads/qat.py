"""Quantisation-aware training: weights and activations are rounded in the forward pass.

They are rounded to ranges that are buffers and follow the data; a frozen teacher in full precision gives the
targets. Loses nothing on a kill, or one step, if only some of the survivors had completed it. Buffers that
change in the forward pass are put back when a step is interrupted.

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 examples/workloads/qat.py
    torchrun --nproc-per-node 4 examples/workloads/qat.py --reference
"""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from material import GLOBAL_BATCH, ONE_EACH, SAMPLES, WIDTH, X, arguments, begin, finish, mlp, share
from torch import nn
from torch.nn.functional import linear, mse_loss
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session


class Rounded(nn.Module):
    """A linear layer in eight bits; it follows the range of its input."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("most", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.most.mul_(0.9).add_(x.detach().abs().max(), alpha=0.1)
        weight = self.inner.weight
        return linear(
            self.round(x, self.most), self.round(weight, weight.detach().abs().max()), self.inner.bias
        )

    @staticmethod
    def round(x: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        scale = most.reshape(1).clone() / 127
        nothing = torch.zeros(1, dtype=torch.int32)
        return torch.fake_quantize_per_tensor_affine(x, scale, nothing, -128, 127)


args = arguments()
teacher = mlp(inner=32, out=WIDTH).requires_grad_(False).eval()
exact = copy.deepcopy(teacher).requires_grad_(True)
student = nn.Sequential(Rounded(exact[0]), exact[1], Rounded(exact[2]))
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
state = {"teacher": teacher, "student": student, "optimizer": optimizer}


def main() -> None:
    session = Session()
    session.track(**state)

    @session.elastic
    def train() -> None:
        ddp = session.ddp(student, bucket_cap_mb=ONE_EACH)
        for _step in session.steps(args.steps):
            rows = session.sample_indices(SAMPLES, GLOBAL_BATCH)
            mse_loss(ddp(X[rows]), teacher(X[rows])).backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    finish(args, session.rank, **state)


def reference() -> None:
    rank = begin()
    ddp = DistributedDataParallel(student, bucket_cap_mb=ONE_EACH, find_unused_parameters=True)
    for step in range(args.steps):
        rows = share(step)
        mse_loss(ddp(X[rows]), teacher(X[rows])).backward()
        optimizer.step()
        optimizer.zero_grad()
    for buffer in student.buffers():  # plain DDP does so before the next forward, session.ddp already has
        dist.broadcast(buffer, 0)
    finish(args, rank, **state)


if __name__ == "__main__":
    reference() if args.reference else main()
