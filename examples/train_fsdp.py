"""A byte-level GPT whose parameters are sharded over the ranks (FSDP2), and that survives failures.

Under torchrun, like any script:

    torchrun --nproc-per-node 2 examples/train_fsdp.py --steps 5

Under Holdfast, where ranks, nodes and daemons may be killed at any moment. A lost rank takes its shard with
it; the shard comes back from the snapshot in its node's memory, from the copy on another node, or from a
checkpoint.

    holdfast run --nproc-per-node 4 --storage /tmp/checkpoints examples/train_fsdp.py

What differs from holdfast/examples/train_gpt.py is marked (1) to (3)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional

from holdfast import Session


class GPT(nn.Module):
    """Takes bytes, and returns for each position the scores of the next byte."""

    def __init__(self, layers: int, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        x = self.bytes(text) + self.positions(torch.arange(length, device=text.device))
        past = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        for block in self.blocks:
            x = block(x, src_mask=past, is_causal=True)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores


def sources(limit: int) -> torch.Tensor:
    """The sources of the Python standard library as bytes, `limit` at most."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--global-batch", type=int, default=16, help="windows per step, over all ranks")
    parser.add_argument("--context", type=int, default=64, help="bytes in a window")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--text-bytes", type=int, default=1 << 20, help="how much text to read at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dcp", default="", help="a URL to save the final state to, with dcp.save")
    parser.add_argument(
        "--digest-dir", default="", help="write the digest of the final state of each rank here"
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    text, window = sources(args.text_bytes), torch.arange(args.context + 1)
    session = Session()

    @session.elastic
    def train() -> dict[str, Any]:
        # (1) Sharded parameters belong to a process group, and each generation has a new one: build model and
        # optimizer in here.
        torch.manual_seed(args.seed)
        model = GPT(args.layers, args.width, args.heads, args.context, args.dropout).to(session.device)
        if session.world_size > 1:
            mesh = init_device_mesh(session.device.type, (session.world_size,))
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

        # (2) Track them in here, too. This also gives them the state from which the generation continues.
        session.track(model=model, optimizer=optimizer, schedule=schedule)

        for _step in session.steps(args.steps):
            n = (len(text) - 1) // args.context
            numbers = session.sample_indices(n, global_batch=args.global_batch, seed=args.seed)
            rows = text[numbers[:, None] * args.context + window].long().to(session.device)
            loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            session.report(loss=float(loss.detach()))
        return finish(args, model, optimizer)

    told = train()
    print(f"final digest {told['digest']}")
    if args.digest_dir:
        write(Path(args.digest_dir) / f"{session.rank}.json", {"rank": session.rank, **told})


def finish(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The digest of the whole state. Collective, like everything that needs whole tensors: all ranks must
    call it."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    values, moments = get_state_dict(model, optimizer)
    if args.dcp:
        # (3) Save with torch.distributed.checkpoint in Holdfast's format, to be loaded on any number of
        # ranks.
        from torch.distributed.checkpoint import save

        from holdfast.dcp import HoldfastWriter

        writer = HoldfastWriter(args.dcp, job="train-fsdp", step=args.steps)
        save({"model": values, "optimizer": moments}, storage_writer=writer)
    return {"digest": digest({"model": values, "optimizer": moments})}


def digest(state: dict[str, Any]) -> str:
    total = hashlib.blake2b(digest_size=16)

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                add(item, f"{path}.{key}")
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            total.update(path.encode())
            total.update(whole.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())

    add(state, "")
    return total.hexdigest()


def write(path: Path, told: dict[str, Any]) -> None:
    """Write to a file of this rank's own, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(told))
    partial.replace(path)


if __name__ == "__main__":
    main()
