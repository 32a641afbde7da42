"""A byte-level GPT in pipeline stages, of which the last one holds more layers than the others.

It is the script of `holdfast demo --doctor --plant last-stage`. All other stages hold `--layers` layers each;
the last one holds as many times more as the plan (`plan.py`) says. No rank is to blame for that: the layout
is. The stages exchange one micro-batch after the other (1F1B), and the replicas of a stage average their
gradients."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from holdfast import Session
from holdfast.examples import plan
from holdfast.examples.train_gpt import Block, Windows, standard_library

WIDTH, HEADS, CONTEXT, DROPOUT = 96, 4, 64, 0.1
MICRO_BATCHES, GLOBAL_BATCH = 4, 32


class First(nn.Module):
    """Takes bytes, and returns what the layers of the first stage make of them."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block(WIDTH, HEADS, DROPOUT) for _ in range(layers)])

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.blocks(self.bytes(text) + self.positions(torch.arange(text.shape[1])))
        return found


def last(layers: int) -> nn.Module:
    """The last stage: it also scores the next byte."""
    blocks = [Block(WIDTH, HEADS, DROPOUT) for _ in range(layers)]
    return nn.Sequential(*blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False))


def build(at: int, of: int, layers: int) -> nn.Module:
    """Make stage `at` of `of`."""
    torch.manual_seed(at)
    if at == of - 1:
        more = max((fault["factor"] for fault in plan.faults() if fault["kind"] == "last-stage"), default=1.0)
        return last(round(layers * more))
    return First(layers) if at == 0 else nn.Sequential(*[Block(WIDTH, HEADS, DROPOUT) for _ in range(layers)])


def loss_of(scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy over all bytes."""
    return functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def average(stage: nn.Module, group: Any) -> None:
    """Average the gradients over the replicas of this stage."""
    for parameter in stage.parameters():
        dist.all_reduce(parameter.grad, group=group)
        assert parameter.grad is not None
        parameter.grad.div_(dist.get_world_size(group))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=2, help="layers of every stage but the last")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    windows, session = Windows(standard_library(1 << 20), CONTEXT), Session()

    @session.elastic
    def train() -> None:
        mesh = session.mesh()
        at, of = mesh["pp"].get_local_rank(), mesh["pp"].size()
        stage = build(at, of, args.layers)
        optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-3)
        session.track(stage=stage, optimizer=optimizer)
        place = PipelineStage(stage, at, of, torch.device("cpu"), group=mesh["pp"].get_group())
        schedule: Any = Schedule1F1B(place, MICRO_BATCHES, loss_fn=loss_of)
        for _step in session.steps(args.steps):
            text, following = windows.batch(session.sample_indices(len(windows), GLOBAL_BATCH))
            inputs = [text] if at == 0 else []
            schedule.step(*inputs, **{"target": following} if at == of - 1 else {})
            average(stage, mesh["dp"].get_group())
            optimizer.step()
            optimizer.zero_grad()

    train()


if __name__ == "__main__":
    main()
