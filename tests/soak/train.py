"""Train a small model, and record the digest of its whole state after every step.

Arguments: folder, kind, pace in s, steps between checkpoints that are asked for (0: none). Kinds: plain,
sharded, and gathered: sharded, and the digest of the gathered state is recorded too."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 20
"""Steps between two looks for the file that says where it all ends."""
SAMPLES, BATCH = 4096, 16


class Model(nn.Module):
    """A table of which a step changes few rows, dense layers, and a buffer that nobody changes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(SAMPLES, 8)
        self.dense = nn.Sequential(nn.Linear(8, 640), nn.GELU(), nn.Dropout(0.1), nn.Linear(640, 40))
        self.register_buffer("frozen", torch.randn(40, 500))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.dense(self.table(numbers)) @ self.frozen
        return found


def build(mesh: Any = None) -> dict[str, Any]:
    torch.manual_seed(5)
    model = Model()
    if mesh is not None:
        fully_shard(model.table, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.dense.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "rows": torch.optim.SGD(model.table.parameters(), lr=0.1)}


def digest(things: dict[str, Any]) -> str:
    """The digest of the content of all tensors that this rank holds, whatever their order and names."""
    return content(each.to_local() if isinstance(each, DTensor) else each for each in tensors(things))


def whole_digest(things: dict[str, Any]) -> str:
    """The same of the whole tensors. Collective."""
    return content(each.full_tensor() if isinstance(each, DTensor) else each for each in tensors(things))


def tensors(things: dict[str, Any]) -> list[torch.Tensor]:
    found = list(things["model"].state_dict().values())
    return found + [value for state in things["optimizer"].state.values() for value in state.values()]


def content(values: Iterable[torch.Tensor]) -> str:
    return combined(hashlib.blake2b(raw(each), digest_size=16).digest() for each in values if each.numel())


def raw(value: torch.Tensor) -> bytes:
    whole: bytes = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return whole


def combined(digests: Any) -> str:
    return hashlib.blake2b(b"".join(sorted(digests)), digest_size=16).hexdigest()


class Book:
    """A file whose lines survive a SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def main() -> None:
    folder, kind, pace_s, ask_every = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    stacks = (folder / f"{os.getpid()}.stacks").open("w")
    faulthandler.register(signal.SIGUSR1, stacks)
    session = Session()
    names = ("steps", "asks", "wholes", "resumed")
    steps, asks, wholes, resumed = (Book(folder / f"{os.getpid()}.{name}") for name in names)
    handles: list[Any] = []
    things = build() if kind == "plain" else {}
    if kind == "plain":
        session.track(**things)

    def told(*, wait_s: float = 0) -> None:
        for handle in list(handles):
            if handle.outcome or (wait_s and handle.wait(wait_s)) or wait_s:
                handles.remove(handle)
                checkpoint = handle.checkpoint or "-"
                asks.write(handle.request or "-", handle.outcome or "open", checkpoint, handle.reason)

    @session.elastic
    def train() -> None:
        nonlocal things
        if kind != "plain":
            things = build(init_device_mesh("cpu", (session.world_size,)))
            session.track(**things)
        (folder / f"{session.rank}.part{os.getpid()}").write_text(str(os.getpid()))
        (folder / f"{session.rank}.part{os.getpid()}").rename(folder / f"{session.rank}.pid")
        model = session.ddp(things["model"]) if kind == "plain" else things["model"]
        if kind == "gathered" and session.restore():
            resumed.write(session.generation, session.step, session.world_size, whole_digest(things))
        while (upto := target(folder, session.restore())) > session.step:
            for step in session.steps(upto):
                numbers = session.sample_indices(SAMPLES, BATCH, seed=3)
                for optimizer in (things["optimizer"], things["rows"]):
                    optimizer.zero_grad(set_to_none=True)
                while (folder / "hold").exists():
                    time.sleep(0.02)
                model(numbers).pow(2).mean().backward()
                time.sleep(pace_s)
                things["optimizer"].step()
                things["rows"].step()
                steps.write(step + 1, session.rank, digest(things))
                if kind == "gathered":
                    wholes.write(step + 1, whole_digest(things))
                told()
                if ask_every and step % ask_every == ask_every - 1:
                    handles.append(session.checkpoint())
        told(wait_s=30)

    train()
    told(wait_s=30)
    session.close()


def target(folder: Path, step: int) -> int:
    path = folder / "last"
    return int(path.read_text()) if path.exists() else (step // BLOCK + 1) * BLOCK


if __name__ == "__main__":
    main()
