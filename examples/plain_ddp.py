"""A training script that does not know Holdfast: plain DistributedDataParallel, with its own checkpoint.

    torchrun --nproc-per-node 2 examples/plain_ddp.py
    holdfast run --nproc-per-node 2 --spares 2 examples/plain_ddp.py

Under `holdfast run`, when a rank dies, all ranks are started again in warm interpreters and continue from the
script's own file."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--checkpoint", default="plain_ddp.pt", help="file of its own checkpoint")
    parser.add_argument("--pause", type=float, default=0.0, help="s to wait in each step, to watch it")
    return parser.parse_args()


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint, and return the step to continue from: 0 without one."""
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def save(path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save as a whole or not at all: the old file stays until the new one is complete."""
    partial = path.with_suffix(".part")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, partial)
    partial.replace(path)


def main() -> None:
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path = Path(args.checkpoint)
    start = load(path, model, optimizer)
    ddp = DistributedDataParallel(model)
    print(f"rank {rank} of {dist.get_world_size()} starts at step {start}, try {restarts()}", flush=True)
    for step in range(start, args.steps):
        generator = torch.Generator().manual_seed(step * 1000 + rank)
        batch = torch.randn(32, 64, generator=generator)
        loss = (ddp(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        time.sleep(args.pause)
        if rank == 0 and (step + 1) % args.save_every == 0:
            save(path, step + 1, model, optimizer)
            print(f"step {step + 1} of {args.steps}, loss {loss.item():.6f}", flush=True)
    print(f"rank {rank} is done at step {args.steps}", flush=True)
    dist.destroy_process_group()


def restarts() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


if __name__ == "__main__":
    main()
