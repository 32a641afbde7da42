"""Several functions with loops in one script: each begins with a memory of its own."""

from __future__ import annotations

import functools
import gc
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from holdfast import Session
from holdfast.integrations.entry import LoopEntry

BATCHES = 5


def training(entry: LoopEntry, session: Session, kept: list[Any]) -> tuple[list[int], int]:
    """Call a function with a training in it. Returns the batches whose call to a logger was made, and how
    many things a name of the integration's has. `kept`: what the script keeps of its trainings."""
    made: list[int] = []

    @entry.elastic
    def main() -> int:
        loop, model = entry.loop, torch.nn.Linear(2, 1)
        optimizer, average = torch.optim.SGD(model.parameters(), lr=0.1), AveragedModel(model)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        kept.extend((average, schedule))
        session.track(model=model, optimizer=optimizer, average=average, schedule=schedule)
        session.track(loop=loop.progress)
        loop.kept.setdefault("trackers", []).append(model)
        for _epoch in loop.epochs(1):
            for batch in loop.batches(lambda _epoch, position: iter(range(position, BATCHES))):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                loop.moved()
                if loop.logs():
                    made.append(batch)
        return len(loop.kept["trackers"])

    return made, main()


def _of(session: Session, _cpu: bool) -> Session:
    return session


def test_a_second_function_calls_its_loggers_and_has_things_of_its_own() -> None:
    session, kept = Session(), list[Any]()
    entry = LoopEntry(functools.partial(_of, session), "a framework", "track it", "track it")
    assert [training(entry, session, kept) for _ in range(2)] == [(list(range(BATCHES)), 1)] * 2
    kept.clear()
    Session()  # in the place of the one before: other tests look for averages that nobody keeps
    del session, entry
    gc.collect()
