"""Make one mistake with data, which the SDK must name. `MODE` selects it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from holdfast import Session, SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

MODE = os.environ["MODE"]
torch.manual_seed(0)
session = Session(data_change="continue" if MODE == "two batches" else "refuse")
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)
rows = torch.utils.data.TensorDataset(torch.arange(20))


class Endless(IterableDataset[int]):
    def __iter__(self) -> object:  # type: ignore[override]
        return iter(int, 1)


class Keeping(DataLoader[tuple[torch.Tensor, ...]]):
    def state_dict(self) -> dict[str, int]:
        return {"at": 3}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


class Placed(IterableDataset[int]):
    def __init__(self, dp_rank: int, dp: int) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.at += 1
            yield self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def before() -> None:
    if MODE == "rank":
        print(session.rank)
    if MODE == "world_size":
        print(session.world_size)
    if MODE == "layout":
        print(session.layout.dp_rank)
    if MODE == "track":
        session.track(data=Keeping(rows, sampler=DistributedSampler(rows, 2, 0)))
    if MODE == "endless":
        session.loader(Endless(), 4)
    if MODE == "plain loader":
        session.loader(DataLoader(rows), 4)
    if MODE == "option":
        session.loader(rows, 4, shuffle=True)
    if MODE == "sampler outside":
        iter(session.sampler(20, 4))
    if MODE == "data_change":
        Session(data_change="maybe")
    if MODE == "worker":
        process = torch.multiprocessing.get_context("spawn").Process(target=train)
        process.start()
        process.join()


@session.elastic
def train() -> None:
    loader = session.loader(rows, 4, micro=2) if MODE.startswith("part") else session.loader(rows, 4)
    if MODE == "loader first":
        next(loader)
    if MODE == "steps' seed":
        list(session.steps(3, seed="0"))
    places = [session.loader(Placed, 4) for _ in range(2)]
    for step in session.steps(3):
        if MODE == "two places":
            next(places[0]), next(places[1])
        if MODE == "two places in turn":
            next(places[step % 2])
        if MODE == "two kinds":
            next(places[0]), next(loader)
        if MODE == "two kinds turned":
            next(loader), next(places[0])
        if MODE == "made anew":
            taken = next(places[step])
            places.append(session.loader(Placed, 4))
            assert taken.tolist() == list(range(4 * step, 4 * step + 4))
        if MODE == "twice":
            session.sample_indices(20, 4)
            session.sample_indices(20, 4)
        if MODE == "twice in parts":
            session.sample_indices(20, 4, micro=(0, 2))
            session.sample_indices(20, 4, micro=(0, 2))
        if MODE == "one seed":
            session.sample_indices(20, 4)
            session.sample_indices(30, 4)
        if MODE == "two batches":
            session.sample_indices(20, 4)
            session.sample_indices(20, 5)
        if MODE == "half":
            session.sample_indices(20, 4, micro=(1, 2))
        if MODE == "fine":
            session.sample_indices(20, 4)
            whole = session.sample_indices(20, 4, 1)
            parts = [session.sample_indices(20, 4, 2, micro=(part, 3)) for part in range(3)]
            assert whole.tolist() != torch.cat(parts).tolist() and len(whole) == len(torch.cat(parts)) == 4
        if MODE == "loader twice":
            next(loader), next(loader)
        if MODE == "parts left":
            next(next(loader))
        if MODE == "small":
            assert [len(each[0]) for each in next(session.loader(rows, 3, micro=1, seed=4))] == [1, 1, 1]
            assert [len(each[0]) for each in next(session.loader(rows, 3, micro=5, seed=step + 6))] == [3]
        if MODE == "sampler":
            batches = iter(DataLoader(rows, batch_sampler=session.sampler(20, 4)))
            if step == 0:
                next(batches)
            kept.append(batches)
        optimizer.step()


@session.elastic
def again() -> None:
    for _ in session.steps(2):
        session.sample_indices(30, 4)
        optimizer.step()


kept: list[object] = []
if __name__ == "__main__":
    try:
        before()
        train()
        if MODE == "fine":
            again()  # another training, with data of its own
    except SessionError as error:
        print("refused:", error, flush=True)
    session.close()
elif MODE == "worker":
    print("in the worker", session.rank, flush=True)
