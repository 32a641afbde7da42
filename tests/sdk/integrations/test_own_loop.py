"""A script's own loop over epochs and batches: where it goes on, what it refuses; loaders at a position."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from holdfast import Session
from holdfast.clean import loop_locals
from holdfast.data.seeding import PreservedGenerators
from holdfast.errors import SessionError
from holdfast.integrations.entry import LoopEntry
from holdfast.integrations.led_loader import LedLoader
from holdfast.integrations.own_loop import LoopMemory, OwnLoop
from holdfast.integrations.placed import PlacedLoader, seed_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCHES = 5


class Training:
    """A loop without an agent: what it did, by (epoch, batch), and the steps that ended."""

    def __init__(self, memory: LoopMemory | None = None, **where: Any) -> None:
        self.session = Session()
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loop = OwnLoop(self.session, memory or LoopMemory(), "a loop", "track it", "track it")
        self.session.track(model=self.model, optimizer=self.optimizer, loop=self.loop.progress)
        self.loop.progress.load_state_dict(where)
        self.did: list[tuple[int, int]] = []

    def batches(self) -> Iterator[int]:
        """The training's loader."""
        return self.loop.batches(lambda _epoch, position: iter(range(position, BATCHES)))

    def step(self) -> None:
        """An optimizer steps."""
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loop.moved()

    def run(self, body: Callable[[int, int], object], epochs: int = 2) -> None:
        """Go through the loop."""

        @self.session.elastic
        def train() -> None:
            for epoch in self.loop.epochs(epochs):
                for batch in self.batches():
                    self.did.append((epoch, batch))
                    body(epoch, batch)
            self.loop.finish()

        train()


def test_a_step_ends_after_the_optimizer_and_at_the_end_of_an_epoch() -> None:
    training, ended = Training(), []
    training.session.after_step(lambda _step: ended.append(training.did[-1]))
    training.run(lambda _epoch, batch: training.step() if batch % 2 else None)
    assert training.did == [(epoch, batch) for epoch in range(2) for batch in range(BATCHES)]
    assert ended == [(0, 1), (0, 3), (0, 4), (1, 1), (1, 3), (1, 4)]
    assert (training.loop.progress.epoch, training.loop.progress.batch) == (2, 0)


def test_it_goes_on_at_the_batch_of_the_newest_boundary() -> None:
    training = Training(epoch=1, batch=4, ranks=1)
    training.run(lambda *_: training.step())
    assert training.did == [(1, 4)]


def test_an_epoch_whose_batches_are_over_is_entered_for_what_follows_them() -> None:
    training = Training(epoch=1, batch=BATCHES, ranks=1)
    entered: list[tuple[int, list[int]]] = []

    @training.session.elastic
    def train() -> None:
        entered.extend((epoch, list(training.batches())) for epoch in training.loop.epochs(2))

    train()
    assert entered == [(1, [])]


def test_a_loop_that_was_left_is_over() -> None:
    training = Training()

    @training.session.elastic
    def train() -> None:
        for _epoch in training.loop.epochs(2):
            for _batch in training.batches():
                training.step()
                break
            break
        training.loop.finish()

    train()
    assert training.loop.progress.over
    again = Training(**training.loop.progress.state_dict())
    again.run(lambda *_: None)
    assert again.did == []


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(SessionError, match="2 ranks trained the state, and there are 1"):
        Training(ranks=2).run(lambda *_: None)


def test_a_loader_that_is_read_twice_in_an_epoch_is_refused() -> None:
    training = Training()
    with pytest.raises(SessionError, match="read a second time in epoch 0"):
        training.run(lambda *_: next(training.batches()))


def test_a_loader_that_is_read_outside_of_the_epochs_is_refused() -> None:
    with pytest.raises(SessionError, match=r"within the loop over epochs\(\.\.\.\)"):
        next(Training().batches())


def test_two_loops_are_refused() -> None:
    training = Training()
    with pytest.raises(SessionError, match="one loop over epochs"):
        training.run(lambda *_: next(iter(training.loop.epochs(1))))


def test_a_scheduler_that_is_not_tracked_is_refused_by_name() -> None:
    training = Training()
    lost = torch.optim.lr_scheduler.StepLR(training.optimizer, 1)
    with pytest.raises(SessionError, match=r"a loop: the StepLR is not kept.*track it"):
        training.run(lambda *_: None)
    assert lost.last_epoch == 0


def test_schedulers_inside_of_a_tracked_one_are_kept() -> None:
    training = Training()
    kinds = torch.optim.lr_scheduler
    inner: list[Any] = [kinds.StepLR(training.optimizer, 1), kinds.ConstantLR(training.optimizer)]
    training.session.track(schedule=kinds.SequentialLR(training.optimizer, inner, [2]))
    training.run(lambda *_: training.step())
    assert len(training.did) == 2 * BATCHES


def test_a_call_to_a_logger_is_made_once_though_its_step_runs_again() -> None:
    memory, made = LoopMemory(), []

    def log(training: Training) -> Callable[[int, int], None]:
        def body(epoch: int, batch: int) -> None:
            training.step()
            if training.loop.logs():
                made.append((epoch, batch))

        return body

    first = Training(memory)
    first.run(log(first))
    again = Training(memory, epoch=1, batch=3, ranks=1, logged=8)
    again.run(log(again))
    assert made == first.did


def test_what_is_made_outside_of_the_function_is_refused() -> None:
    entry = LoopEntry(lambda _cpu: None, "a framework", "track it", "track it")
    with pytest.raises(SessionError, match="a framework: make it in a function under @elastic"):
        entry.loop  # noqa: B018


def test_without_an_agent_the_function_is_called_as_it_is() -> None:
    entry = LoopEntry(lambda _cpu: None, "a framework", "track it", "track it")

    @entry.elastic
    def plus(a: int, b: int = 1) -> int:
        return a + b

    @entry.elastic(cpu=True)
    def minus(a: int) -> int:
        return -a

    assert (plus(1, b=2), minus(1), plus.__name__) == (3, -1, "plus")


def test_a_variable_that_is_not_kept_is_told_of_with_what_keeps_it_here() -> None:
    training = Training()
    loop = LoopEntry(lambda _cpu: training.session, "a framework", "track it", "give it to keep()")

    @loop.elastic
    def main() -> float:
        total, loader = 0.0, training.loop.epochs(1)
        for _epoch in SimpleNamespace(epochs=lambda _total, _loader: loader).epochs(1, loader):
            for batch in training.batches():
                total += batch
                training.step()
        training.loop.finish()
        return total

    assert main() == sum(range(BATCHES))
    forgotten = training.session.runtime.forgotten
    assert (forgotten.keep, [each.name for each in loop_locals.unkept(forgotten.functions[0])]) == (
        *("give it to keep()", ["total"]),
    )


def test_an_attribute_that_changes_from_epoch_to_epoch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    training = Training()

    def body(epoch: int, _batch: int) -> None:
        vars(training.model)["stage"] = epoch
        training.step()

    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        training.run(body, epochs=3)
    (told,) = (record.getMessage() for record in caplog.records if "stage" in record.getMessage())
    assert told.startswith("a loop: Linear.stage changes in the training and is not kept")


class Noisy(Dataset[Any]):
    """Samples with random numbers of the process that fetches them."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random()


def _read(epoch: int, position: int, apart: int = 0, **options: Any) -> list[Any]:
    loader = DataLoader(Noisy(), batch_size=4, **options)
    placed = PlacedLoader(loader, 7, apart)
    placed.place(epoch, position)
    with PreservedGenerators():
        found = [[each.tolist() for each in batch] for batch in placed.open()]
    assert isinstance(loader.dataset, Noisy)
    return found


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"shuffle": True}], ids=str)
def test_batches_from_a_position_on_are_those_of_the_whole_epoch(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    whole = _read(1, 0, **options)
    torch.manual_seed(4)
    random.seed(5)
    assert _read(1, 4, **options) == whole[4:]
    assert len(whole) == 6


def test_the_random_numbers_of_epochs_and_of_ranks_differ() -> None:
    first, later, other = _read(0, 0), _read(1, 0), _read(0, 0, apart=1)
    assert [batch[0] for batch in first] == [batch[0] for batch in later] == [batch[0] for batch in other]
    drawn = {tuple(batch[1]) for found in (first, later, other) for batch in found}
    assert len(drawn) == 3 * 6


class Orders(DataLoader[Any]):
    """As a framework's: another order each time it is opened, by a count of its own."""

    opened = 0

    def __iter__(self) -> Any:
        self.opened += 1
        yield from [self.opened - 1] * 3


class LedOrders(LedLoader, Orders):  # type: ignore[misc]
    _counter = "opened"

    def _check(self) -> None:
        pass

    def _open_at(self, epoch: int, position: int) -> Iterator[Any]:
        return iter(range(position, epoch))


def other(training: Training) -> LedOrders:
    return LedOrders.instead_of(Orders(list(range(3))), training.loop)  # type: ignore[arg-type]


def test_the_order_of_another_loader_does_not_depend_on_how_often_this_process_has_opened_it() -> None:
    def orders(before: int) -> list[list[int]]:
        training, found = Training(), []
        loader = other(training)
        for _ in range(before):
            list(loader)

        def body(*_: int) -> None:
            found.append([*loader, *loader])
            training.step()

        training.run(body)
        return found

    assert orders(0) == orders(3)
    flat = [order for found in orders(0) for order in found]
    assert len(set(flat)) == 2 * 2 * BATCHES


def test_another_loader_that_is_read_across_steps_is_refused() -> None:
    training = Training()
    read = iter(other(training))

    def body(*_: int) -> None:
        next(read)
        training.step()

    with pytest.raises(SessionError, match="a loader that is not the training's is read across steps"):
        training.run(body)


def test_another_loader_may_be_left_before_its_end_and_opened_again() -> None:
    training = Training()
    loader = other(training)

    def body(*_: int) -> None:
        next(iter(loader))
        training.step()

    training.run(body)
    assert len(training.did) == 2 * BATCHES


class Drawing(Dataset[list[float]]):
    """Samples of random numbers, of the process and of a generator of its own."""

    def __init__(self) -> None:
        self.own = random.Random(1)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[float]:
        return [torch.rand(()).item(), self.own.random()]


def test_an_evaluation_draws_the_same_in_persistent_workers_that_are_new() -> None:
    def drawn(loader: Any, step: int) -> list[Any]:
        torch.manual_seed(step)  # each step is seeded
        seed_evaluation(loader, 1, step, 0)
        return [torch.stack(batch).tolist() for batch in loader]

    def loader() -> Any:
        return DataLoader(Drawing(), 2, num_workers=1, persistent_workers=True)

    old = loader()
    first, second = drawn(old, 4), drawn(old, 8)
    assert first != second == drawn(loader(), 8)
    for name in ("base_dataloader", "_dataloader"):  # accelerate's loaders and Fabric's hold torch's
        held = {name: old, "dataset": old.dataset, "collate_fn": old.collate_fn}
        drawn(old, 9)
        seed_evaluation(SimpleNamespace(**held), 1, 10, 0)
        assert old._iterator is None
