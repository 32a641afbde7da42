"""Train on an iterable data set that reports its own position. Its samples are written down as they are
consumed. Variables of the environment tell how it is split, how long each part is, and which rank is killed
when."""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from holdfast import Session
from tests.sdk.data.loading import maybe_die

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(os.environ.get("OUT", "."))
STEPS, TOTAL, BATCH = int(os.environ.get("STEPS", "30")), int(os.environ.get("TOTAL", "400")), 8
MICRO = int(os.environ.get("MICRO", "0")) or None
MODE = os.environ.get("MODE", "")
EVERY = int(os.environ.get("EVERY", "1"))  # the steps whose gradients one step of the optimizer takes
FUNCTIONS = int(os.environ.get("FUNCTIONS", "1"))  # calls of the elastic function
WAIT_FOR = int(os.environ.get("WAIT_FOR", "-1"))


class Numbers(IterableDataset[Any]):
    """The numbers of range(TOTAL) whose remainder by dp is dp_rank. Replica 1 may have fewer."""

    def __init__(self, dp_rank: int, dp: int) -> None:
        self.rest = list(range(dp_rank, TOTAL, dp))
        if MODE == "short" and dp_rank == 1:
            del self.rest[-10:]
        self.seen = torch.zeros(1, dtype=torch.int64)

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor, float]]:
        shuffle = random.Random(3)  # no state has it
        while self.rest:
            self.seen += 1
            odd = random.random() + (shuffle.random() if MODE == "forgets" else 0)
            yield self.rest.pop(0), torch.rand(2).double(), odd

    def state_dict(self) -> dict[str, Any]:
        return {"rest": list(self.rest), "seen": self.seen, "odd": (1, None, 2.5)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["odd"] == (1, None, 2.5)
        self.rest, self.seen = list(state["rest"]), state["seen"].clone()


class Dealt(Numbers):
    """The same, but the position also holds after the size of the world has changed."""

    def redistribute(self, states: list[dict[str, Any]], old_dp: int, new_dp: int) -> list[dict[str, Any]]:
        assert len(states) == old_dp
        rest = sorted(number for state in states for number in state["rest"])
        return [{**states[0], "rest": rest[rank::new_dp]} for rank in range(new_dp)]


class Batches(DataLoader[Any]):
    """What a loader that keeps its place looks like: torchdata's, without workers."""

    def state_dict(self) -> Any:
        return self.dataset.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: Any) -> None:
        self.dataset.load_state_dict(state)  # type: ignore[attr-defined]


class Lazy(IterableDataset[Any]):
    """Is made once, before the rank has a place; it looks at the session's layout only when it is read."""

    def __init__(self, session: Session) -> None:
        self.session, self.at = session, 0

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor, float]]:
        while True:
            at, self.at = self.session.layout, self.at + 1
            yield (self.at - 1) * at.dp + at.dp_rank, torch.rand(2).double(), random.random()

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def source(session: Session) -> Any:
    kind = Dealt if os.environ.get("DEALT") else Numbers
    if MODE == "object":
        at = session.layout
        return kind(at.dp_rank, at.dp)
    if MODE == "torchdata":
        made = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader
        return lambda rank, dp: made(kind(rank, dp), batch_size=BATCH // dp, num_workers=1, drop_last=True)
    if MODE == "batches":
        return lambda rank, dp: Batches(kind(rank, dp), batch_size=MICRO or BATCH // dp, drop_last=True)
    return kind


def main() -> None:
    session = Session()
    torch.manual_seed(5)
    model = torch.nn.Linear(3, 1).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session.track(model=model, optimizer=optimizer)
    books = [(OUT / f"book{number or ''}.{os.getpid()}").open("a") for number in range(FUNCTIONS)]
    lazy = Lazy(session)

    @session.elastic
    def train(function: int) -> list[float]:
        wrapped, book = session.ddp(model), books[function]
        loader = session.loader(lazy if MODE in ("lazy", "moved") else source(session), BATCH, micro=MICRO)
        for step, item in zip(session.steps(STEPS), loader, strict=False):
            samples, noise, weights = [], [], []
            if step % EVERY == 0:
                optimizer.zero_grad()
            for number, (index, drawn, more) in enumerate(item if MICRO else [item]):
                samples += index.tolist()
                noise += drawn.flatten().tolist() + more.tolist()
                weights.append(session.loss_weight)
                maybe_die(f"{'later' if function else 'part'}{number}", session.rank, step)
                found = torch.cat([drawn, (index / TOTAL + more).unsqueeze(1)], 1)
                wrapped(found).square().mean().backward()
            line = {"step": step, "generation": session.generation, "rank": session.rank, "samples": samples}
            book.write(json.dumps(line | {"noise": noise, "weights": weights, "workers": []}) + "\n")
            book.flush()
            if step % EVERY == EVERY - 1:
                optimizer.step()
            while step == WAIT_FOR and not (OUT / "go").exists():
                time.sleep(0.005)
        return [float(value.detach().sum()) for value in model.parameters()]

    for function in range(FUNCTIONS):
        sums = train(function)
        lazy.at += MODE == "moved"
    line = {"rank": session.rank, "sums": sums, "step": session.step}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
    session.close()


if __name__ == "__main__":
    main()
    sys.exit(0)
