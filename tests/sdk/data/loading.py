"""A training on session.loader, session.sampler or sample_indices whose samples, random numbers and weights
are written down as they are consumed. Variables of the environment select which, and which rank is killed
when."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(os.environ.get("OUT", "."))
KIND = os.environ.get("KIND", "loader")
STEPS, N, BATCH = int(os.environ.get("STEPS", "14")), int(os.environ.get("N", "97")), 10
BATCH, SEED = int(os.environ.get("BATCH", "10")), int(os.environ.get("SEED", "3"))
MICRO = int(os.environ.get("MICRO", "0")) or None
CHANGE = os.environ.get("CHANGE", "refuse")
KILLS: list[dict[str, Any]] = json.loads(os.environ.get("KILL", "[]"))
OPTIONS: dict[str, Any] = json.loads(os.environ.get("OPTIONS", "{}"))
GROWS = int(os.environ.get("GROWS", "0"))  # by how much each step's batch is larger than the one before
EVERY = int(os.environ.get("EVERY", "1"))  # the steps whose gradients one step of the optimizer takes
FUNCTIONS = int(os.environ.get("FUNCTIONS", "1"))  # calls of the elastic function
WAIT_FOR = int(os.environ.get("WAIT_FOR", "-1"))


class Noisy(torch.utils.data.Dataset[Any]):
    """A data set that augments each sample with random numbers of torch and of random, and adds the process
    that made it."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, float, int]:
        if not 0 <= index < N:
            raise IndexError(index)
        time.sleep(random.choice([0, 0.002]))
        return index, torch.rand(2).double(), random.random(), os.getpid()


def maybe_die(phase: str, rank: int, step: int) -> None:
    for number, kill in enumerate(KILLS):
        marker = OUT / f"killed.{number}"
        if (kill["phase"], kill["rank"], kill["step"]) == (phase, rank, step) and not marker.exists():
            marker.touch()
            die_together(phase, step)


def die_together(phase: str, step: int) -> None:
    """Die when all have come here that are to die here: else one might hear of the other's death before."""
    at = [number for number, kill in enumerate(KILLS) if (kill["phase"], kill["step"]) == (phase, step)]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all((OUT / f"killed.{number}").exists() for number in at):
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)


def parts_of(session: Session, loader: Any) -> Iterator[list[list[Any]]]:
    """For each step its micro-batches; each is a batch of Noisy."""
    if KIND == "loader":
        for _, item in zip(session.steps(STEPS), loader, strict=False):
            yield item if MICRO else [item]
    elif KIND == "sampler":
        sampler = session.sampler(N, BATCH, micro=MICRO, seed=SEED)
        batches = iter(DataLoader(Noisy(), batch_sampler=sampler, generator=torch.Generator(), **OPTIONS))
        for _ in session.steps(STEPS):
            yield [next(batches) for _ in range(-(-BATCH // session.world_size // MICRO) if MICRO else 1)]
    else:
        for _ in session.steps(STEPS):
            count = 3 if MICRO else 1
            yield (chosen(session, part, count) for part in range(count))  # type: ignore[misc]


def chosen(session: Session, part: int, count: int) -> list[Any]:
    size = BATCH + GROWS * session.step
    numbers = session.sample_indices(N, size, SEED, micro=(part, count) if MICRO else None)
    pids = torch.full((len(numbers),), os.getpid())
    return [numbers, torch.zeros(len(numbers), 2).double(), torch.zeros(len(numbers)).double(), pids]


def main() -> None:
    session = Session(data_change=CHANGE)
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session.track(model=model, optimizer=optimizer)
    books = [(OUT / f"book{number or ''}.{os.getpid()}").open("a") for number in range(FUNCTIONS)]

    def made() -> Any:
        return session.loader(Noisy(), BATCH, micro=MICRO, seed=SEED, **OPTIONS) if KIND == "loader" else None

    outside = made() if os.environ.get("OUTSIDE") else None

    def learn(loader: Any, book: IO[str]) -> None:
        wrapped = session.ddp(model)
        for parts in parts_of(session, loader):
            step = session.step
            samples: list[int] = []
            noise: list[float] = []
            weights: list[float] = []
            workers: set[int] = set()
            if step % EVERY == 0:
                optimizer.zero_grad()
            for number, (index, drawn, more, pids) in enumerate(parts):
                samples += index.tolist()
                noise += drawn.flatten().tolist() + more.tolist()
                weights.append(session.loss_weight)
                workers |= set(pids.tolist())
                maybe_die(f"part{number}", session.rank, step)
                found = torch.cat([drawn, (index / N + more).unsqueeze(1)], 1)
                (wrapped(found).square().mean() / max(len(weights), 1)).backward()
            line = {"step": step, "generation": session.generation, "rank": session.rank, "samples": samples}
            line |= {
                "noise": noise,
                "weights": weights,
                "workers": sorted(workers),
                "batch": session.data_step,
            }
            book.write(json.dumps(line) + "\n")
            book.flush()
            maybe_die("backward", session.rank, step)
            if step % EVERY == EVERY - 1:
                optimizer.step()
            while step == WAIT_FOR and not (OUT / "go").exists():
                time.sleep(0.005)

    @session.elastic
    def train(function: int) -> list[float]:
        loader = outside if outside is not None else made()
        learn(loader, books[function])
        return [float(value.detach().sum()) for value in model.parameters()]

    for function in range(FUNCTIONS):
        sums = train(function)
    line = {"rank": session.rank, "sums": sums, "pid": os.getpid()}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
    session.close()


if __name__ == "__main__":
    main()
    sys.exit(0)
