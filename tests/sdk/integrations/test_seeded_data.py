"""A data set's own random generator gives a sample the same numbers, whatever was fetched before."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from holdfast.data.own_generators import OwnGenerators
from holdfast.errors import SessionError
from holdfast.integrations.hf.data import SeededSamples
from holdfast.integrations.placed import PlacedLoader, PlacedSampler, SeededStream, refuse_late

if TYPE_CHECKING:
    from collections.abc import Callable

numpy: Any = pytest.importorskip("numpy")
KINDS: list[Callable[[], Any]] = [
    lambda: numpy.random.default_rng(0),
    lambda: numpy.random.RandomState(0),
    lambda: random.Random(0),
    lambda: torch.Generator().manual_seed(0),
]


def drawn(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return float(torch.rand((), generator=generator))
    return float(generator.random())


class Noisy(Dataset[float]):
    """Draws from a generator of its own, which is made at once, or with the first sample (`late`)."""

    def __init__(self, make: Callable[[], Any], *, late: bool = False) -> None:
        self.make, self.transforms = make, [{"rng": None if late else make()}]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        if self.transforms[0]["rng"] is None:
            self.transforms[0]["rng"] = self.make()
        return drawn(self.transforms[0]["rng"])


class Stream(torch.utils.data.IterableDataset[float]):
    """In an order, and with noise, of a generator of its own and of the process's."""

    def __init__(self) -> None:
        self.rng = random.Random(0)

    def __iter__(self) -> Any:
        order = list(range(8))
        self.rng.shuffle(order)
        return (each + random.random() + self.rng.random() for each in order)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("make", KINDS)
def test_samples_have_numbers_of_their_own(make: Callable[[], Any], late: bool) -> None:
    samples = SeededSamples(Noisy(make, late=late), 7)
    first = [samples[index] for index in range(4)]
    assert len(set(first)) == 4
    fresh = SeededSamples(Noisy(make, late=late), 7)
    assert [fresh[index] for index in (3, 0)] == [first[3], first[0]]
    fresh.set_epoch(1)
    assert fresh[0] != first[0]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}], ids=["alone", "with a worker"])
@pytest.mark.parametrize("late", [False, True])
def test_a_loader_goes_on_in_the_middle_of_an_epoch(late: bool, options: dict[str, Any]) -> None:
    def read(position: int) -> list[Any]:
        loader = DataLoader(Noisy(KINDS[0], late=late), batch_size=4, **options)
        placed = PlacedLoader(loader, 7, 0)
        placed.place(1, position)
        return [batch.tolist() for batch in placed.open()]

    whole = read(0)
    assert read(1) == whole[1:]
    assert len({number for batch in whole for number in batch}) == 12


def test_a_sampler_with_a_generator_draws_anew_in_each_epoch_from_its_number_alone() -> None:
    def order(sampler: PlacedSampler, epoch: int) -> list[int]:
        sampler.epoch = epoch
        return list(sampler)

    def sampler() -> PlacedSampler:
        weighted = WeightedRandomSampler([1.0] * 30, 30, generator=torch.Generator().manual_seed(3))
        return PlacedSampler(weighted, 7, tagged=False)

    whole = sampler()
    first, second = order(whole, 0), order(whole, 1)
    assert first != second
    assert order(sampler(), 1) == second


def test_an_iterable_data_set_gives_the_same_from_the_beginning() -> None:
    random.seed(1)
    first = list(SeededStream(Stream(), None, 7, 0))
    random.seed(2)
    assert list(SeededStream(Stream(), None, 7, 0)) == first
    assert list(SeededStream(Stream(), None, 7, 1)) != first


def test_generators_are_found_in_what_a_function_holds() -> None:
    rng = random.Random(0)

    def collate(samples: list[float]) -> list[float]:
        return [each + rng.random() for each in samples]

    for function in (collate, functools.partial(collate, []), Noisy(KINDS[1]).__getitem__):
        assert OwnGenerators(function).known()
    assert not OwnGenerators([1.0] * 1000, random.random, lambda samples: samples).known()


def test_a_collate_function_that_makes_its_generator_later_is_refused_by_name() -> None:
    class Masks:
        seed: int | None = 42

        def create_rng(self) -> None: ...

        def __call__(self, samples: Any) -> Any:
            return samples

    masks = Masks()
    with pytest.raises(SessionError, match=r"Masks\(seed=...\) is not supported"):
        PlacedLoader(DataLoader(Noisy(KINDS[0]), collate_fn=masks), 7, 0)
    masks.seed = None
    refuse_late(masks)
