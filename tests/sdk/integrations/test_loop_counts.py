"""What an integration itself counts at each rank goes on where the loop does."""

from __future__ import annotations

from holdfast.integrations.own_loop import LoopMemory
from tests.sdk.integrations.test_own_loop import Training


class Counts:
    """Micro-batches, as an Accelerator counts them."""

    def __init__(self) -> None:
        self.batches = 0

    def read(self) -> list[int]:
        return [self.batches, 7]

    def set(self, counts: list[int]) -> None:
        self.batches, _ = counts


def run(training: Training, counts: Counts) -> None:
    training.loop.counts = counts

    def body(*_: int) -> None:
        counts.batches += 1
        training.step()

    training.run(body)


def test_counts_go_on_from_the_newest_boundary() -> None:
    first, memory = Training(), LoopMemory()
    run(first, Counts())
    assert first.loop.progress.counts == [[10, 7]]
    counts, again = Counts(), Training(memory, epoch=1, batch=3, ranks=1, counts=[[8, 7]])
    run(again, counts)
    assert (again.did, counts.batches) == ([(1, 3), (1, 4)], 10)


def test_a_state_without_counts_is_that_of_an_older_version() -> None:
    counts = Counts()
    run(Training(epoch=1, batch=3, ranks=1), counts)
    assert counts.batches == 2
