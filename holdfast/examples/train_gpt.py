r"""A byte-level GPT, trained on the sources of the Python standard library, that survives failures.

Alone, on one machine, without anything else running:

    python -m holdfast.examples.train_gpt --steps 5

Under Holdfast, where ranks, nodes and daemons may be killed at any moment:

    holdfast run --nnodes 2 --nproc-per-node 2 --spares 1 --storage /tmp/checkpoints \
        -m holdfast.examples.train_gpt

Holdfast asks four things of a script. They are marked (1) to (4) below."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from holdfast import Session


class Block(nn.Module):
    """One transformer layer: attention to earlier positions, then a small network for each position."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        out: torch.Tensor = x + self.network(self.before_network(x))
        return out

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.to_qkv(x).split(width, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        out: torch.Tensor = self.to_out(seen.transpose(1, 2).reshape(batch, length, width))
        return out


class GPT(nn.Module):
    """Takes bytes, and returns for each position the scores of the next byte."""

    def __init__(self, layers: int, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        x = self.drop(self.bytes(text) + self.positions(places))
        scores: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return scores


def standard_library(limit: int) -> torch.Tensor:
    """The sources of this machine's Python standard library as bytes, `limit` at most."""
    folder, text = Path(sysconfig.get_paths()["stdlib"]), bytearray()
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("asyncio/*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


class Windows:
    """Every window of `context` bytes with the byte after it, by number."""

    def __init__(self, text: torch.Tensor, context: int) -> None:
        self.text, self.context = text, context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def batch(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = numbers[:, None] * self.context + torch.arange(self.context + 1)
        rows = self.text[places].long()
        return rows[:, :-1], rows[:, 1:]


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A digest of every bit of the parameters and of the optimizer's state, ordered by name."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for parameter, state in optimizer.state.items():
        tensors |= {f"optimizer.{names[parameter]}.{key}": torch.as_tensor(v) for key, v in state.items()}
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


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
    parser.add_argument(
        "--digest-dir", default="", help="write the digest of the final state of each rank here"
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.manual_seed(args.seed)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    windows = Windows(standard_library(args.text_bytes), args.context)

    # (1) Make a session, build model and optimizer as usual, and track everything that training changes.
    session = Session()
    model = GPT(args.layers, args.width, args.heads, args.context, args.dropout).to(session.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    session.track(model=model, optimizer=optimizer, schedule=schedule)

    # (2) Put the loop into a function. After a failure Holdfast calls it again, in the same process.
    @session.elastic
    def train() -> None:
        # (3) Build in here what belongs to the process group: each failure makes a new group.
        ddp = session.ddp(model)
        ddp.train()

        # Not asked for: a step that is declared as a function can be run again, to find out whether a
        # device or the script damaged the state (--on-corrupt-state act).
        @session.step_function
        def step() -> None:
            numbers = session.sample_indices(len(windows), global_batch=args.global_batch, seed=args.seed)
            text, following = (part.to(session.device) for part in windows.batch(numbers))
            loss = functional.cross_entropy(ddp(text).flatten(0, 1), following.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            session.report(loss=float(loss.detach()))

        # (4) Let the session count the steps and choose the samples: then none is skipped or repeated.
        # tail="skippable" says that what follows the optimizer only reports: it may be left out when a
        # failure interrupts it, and then a death costs no step.
        for _step in session.steps(args.steps, tail="skippable"):
            step()

    train()
    write_digest(args.digest_dir, session.rank, digest(model, optimizer))


def write_digest(folder: str, rank: int, value: str) -> None:
    """Print the digest of the result, and write it to a file of this rank's own, as a whole or not at all."""
    print(f"final digest {value}")
    if folder:
        path = Path(folder) / f"{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"rank": rank, "digest": value}))
        partial.replace(path)


if __name__ == "__main__":
    main()
