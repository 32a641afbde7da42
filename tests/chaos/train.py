"""Be the training that is disturbed: `train.py FOLDER PACE_S`. FOLDER/orders has what its rank must do.

After each step it records its state (FOLDER/<node>.<pid>.steps: step, rank, generation, digest of weights and
optimizer, the account's digest, loss). The account counts every sample that was ever consumed. Counts do not
depend on who sums them: the account is exact for any number of ranks, while the weights are not."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES, BATCH, BLOCK = 240, 12, 20


class Model(nn.Module):
    """Two layers, dropout, and the account of the samples that it has seen."""

    account: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
        self.register_buffer("account", torch.zeros(SAMPLES, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layers(x)
        return made


def digest(values: Any) -> str:
    """A digest of the content of tensors."""
    found = hashlib.blake2b(digest_size=12)
    for value in values:
        found.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The weights, and the optimizer's state of each."""
    found: list[torch.Tensor] = list(model.parameters())
    for parameter in model.parameters():
        kept = optimizer.state[parameter]
        found += [kept[name] for name in sorted(kept)]
    return found


class Book:
    """A file whose lines outlive a SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def taken(folder: Path, name: str) -> bool:
    """Whether this order is there; it is carried out once."""
    try:
        (folder / name).rename(folder / f"{name}.done")
    except FileNotFoundError:
        return False
    return True


def raise_() -> None:
    raise ValueError("chaos: the script's own mistake")


def spin() -> None:
    """Loop in C with the interpreter's lock: nothing in this process makes progress."""
    lock = ctypes.create_string_buffer(64)
    take = ctypes.PyDLL(None).pthread_mutex_lock
    take(lock), take(lock)


def lonely() -> None:
    """Send what no rank receives: this rank waits in it, and the others wait for this rank."""
    dist.send(torch.zeros(1 << 24), dst=(dist.get_rank() + 1) % dist.get_world_size())


DEEDS: dict[str, Callable[[], None]] = {
    "raise": raise_,
    "exit": lambda: os._exit(3),
    "sleep": lambda: time.sleep(1000),
    "lock": spin,
    "send": lonely,
}


def main() -> None:
    folder, pace_s = Path(sys.argv[1]), float(sys.argv[2])
    orders = folder / "orders"
    torch.set_num_threads(1)
    session = Session()
    torch.manual_seed(5)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.track(model=model, optimizer=optimizer)
    data = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(7))
    goal = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(8))
    me = f"{os.environ.get('HOLDFAST_NODE', 'alone')}.{os.getpid()}"
    book = Book(folder / f"{me}.steps")

    @session.elastic
    def train() -> None:
        place = folder / f"{me}.rank"
        place.write_text(f"{os.environ.get('HOLDFAST_NODE')} {os.getpid()} {session.generation}")
        place.rename(folder / f"{session.rank}.place")
        wrapped = session.ddp(model)
        while (upto := target(folder, session.restore())) > session.step:
            for step in session.steps(upto):
                for name, deed in DEEDS.items():
                    if taken(orders, f"{session.rank}.{name}"):
                        deed()
                if taken(orders, f"{session.rank}.fault"):
                    session.fault("chaos: the script distrusts its numbers")
                chosen = session.sample_indices(SAMPLES, BATCH, seed=3)
                seen = torch.bincount(chosen, minlength=SAMPLES)
                if dist.is_initialized():
                    dist.all_reduce(seen)
                model.account += seen
                optimizer.zero_grad(set_to_none=True)
                loss = (wrapped(data[chosen]) - goal[chosen]).pow(2).mean()
                if taken(orders, f"{session.rank}.nan"):
                    loss = loss * math.nan
                session.check(loss)
                loss.backward()
                time.sleep(pace_s)
                optimizer.step()
                state = digest(everything(model, optimizer))
                account = digest([model.account])
                book.write(step + 1, session.rank, session.generation, state, account, loss.item())

    train()
    session.close()


def target(folder: Path, step: int) -> int:
    """The step to train to: the end of a block, until the file `last` names the last one."""
    path = folder / "last"
    return int(path.read_text()) if path.exists() else (step // BLOCK + 1) * BLOCK


if __name__ == "__main__":
    main()
