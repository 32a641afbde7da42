"""Train during a rolling upgrade: each rank has a state of its own, and records its digest at every step.

It imports no more than it needs: two versions start it many times."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import torch

from holdfast import Session

BLOCK = 20
"""Steps between two looks for the file that says where it all ends."""
PACE_S = 0.02


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    session = Session()
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    session.track(model=model, optimizer=optimizer, per_rank=True)

    @session.elastic
    def train() -> None:
        publish(folder / f"{session.rank}.pid", str(os.getpid()))
        total = torch.zeros(1)
        while (upto := target(folder, session.restore())) > session.step:
            for step in session.steps(upto):
                optimizer.zero_grad()
                model(torch.full((4, 64), float(session.rank + step % 7))).square().mean().backward()
                time.sleep(PACE_S)
                torch.distributed.all_reduce(total)  # so no rank gets ahead of one that died
                optimizer.step()
                book = os.open(folder / f"{os.getpid()}.steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.write(book, f"{step + 1} {session.rank} {digest(model)}\n".encode())
                os.close(book)

    train()


def digest(model: torch.nn.Module) -> str:
    parts = [value.numpy().tobytes() for value in model.state_dict().values()]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def target(folder: Path, step: int) -> int:
    path = folder / "last"
    return int(path.read_text()) if path.exists() else (step // BLOCK + 1) * BLOCK


def publish(path: Path, text: str) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text)
    draft.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
