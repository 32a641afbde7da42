"""A data set's own random generators draw the same for a sample, whatever was fetched before."""

from __future__ import annotations

import pickle
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from holdfast.data.left_out import Buffers, LeftOut
from holdfast.data.seeding import PreservedGenerators, Seeded, Tag, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

everywhere = np.random.default_rng(5)


def shifted(rng: random.Random, value: float) -> float:
    return value + rng.random()


class Crop:
    """A transform with two generators, one of them of the class."""

    shared = np.random.RandomState(3)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def __call__(self, value: float) -> float:
        return value + self.rng.normal() + self.shared.rand()


class Noisy:
    """A data set that draws from many."""

    def __init__(self) -> None:
        inner = random.Random(2)
        self.transforms: list[Any] = [Crop(), partial(shifted, random.Random(1))]
        self.transforms.append(lambda value: value + inner.random())
        self.generator = torch.Generator().manual_seed(3)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        value: Any = index + float(torch.rand(1, generator=self.generator)) + everywhere.normal()
        for transform in self.transforms:
            value = transform(value)
        return value


class Late:
    """A data set that makes its generator when the first sample is fetched."""

    rng: Any = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        if self.rng is None:
            self.rng = np.random.default_rng()
        return index + float(self.rng.normal())


class Whole(Noisy):
    """A data set that fetches many at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def fetched(data: Seeded, batch: int, *indices: int) -> Any:
    return data[Wanted(Tag(1, batch, batch, 0), 7, list(indices), [])].data


@pytest.mark.parametrize("kind", [Noisy, Late, Whole])
def test_a_sample_is_the_same_whatever_was_fetched_before(kind: type[Any]) -> None:
    worker, another = Seeded(kind()), Seeded(kind())
    for batch in range(5):
        fetched(worker, batch, 1, 2, 3)
    assert fetched(worker, 5, 4, 2) == fetched(another, 5, 4, 2)
    assert fetched(another, 5, 4) != fetched(another, 6, 4)


def test_generators_that_are_alike_draw_apart() -> None:
    class Two:
        def __init__(self) -> None:
            self.one, self.two = random.Random(1), random.Random(1)

        def __getitem__(self, index: int) -> tuple[float, float]:
            return self.one.random(), self.two.random()

    one, two = fetched(Seeded(Two()), 0, 1)[0]
    assert one != two


def test_without_workers_the_scripts_own_draws_are_untouched() -> None:
    data, before = Seeded(Noisy()), everywhere.bit_generator.state
    with PreservedGenerators(data.own.known()):
        fetched(data, 0, 1)
    assert everywhere.bit_generator.state == before


def test_a_spawned_worker_finds_its_own() -> None:
    class_of_one = Seeded(Late())
    first = fetched(class_of_one, 0, 1)
    assert fetched(pickle.loads(pickle.dumps(class_of_one)), 0, 1) == first


class Stream:
    """A stream that draws from a generator. `kept`: its state has that generator's."""

    def __init__(self, *, kept: bool) -> None:
        self.rng, self.at, self.kept = random.Random(4), 0, kept

    def __iter__(self) -> Iterator[float]:
        while True:
            self.at += 1
            yield self.at + self.rng.random()

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at} | ({"rng": self.rng.getstate()} if self.kept else {})


class Local(Stream):
    """One that makes its generator when it is read."""

    def __iter__(self) -> Iterator[float]:
        shuffle = np.random.default_rng(6)
        while True:
            self.at += 1
            yield self.at + shuffle.normal()


def left_out(stream: Stream, draws: int) -> list[str]:
    """The generators that are named, and a check that nothing was drawn from them meanwhile."""
    samples, other = iter(stream), iter(type(stream)(kept=stream.kept))
    looking, found = LeftOut(), []
    for _ in range(draws):
        looking.before(stream, samples)
        assert next(samples) == next(other)
        found += looking.after(stream.state_dict)
    return found


def test_a_generator_that_a_stream_draws_from_and_leaves_out_of_its_state_is_named_once() -> None:
    assert left_out(Stream(kept=False), 5) == ["rng"]
    assert left_out(Local(kept=True), 5) == ["shuffle"]
    assert not left_out(Stream(kept=True), 5)


class Shuffled(Stream):
    """One that waits for some samples, and gives one of them. `kept`: its state has those."""

    def __init__(self, *, kept: bool) -> None:
        super().__init__(kept=True)
        self.holds, self.waiting, self.shards = kept, list[float](), ["a", "b"]

    def __iter__(self) -> Iterator[float]:
        for each in super().__iter__():
            self.waiting.append(each)
            if len(self.waiting) > 3:
                yield self.waiting.pop(0)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | ({"waiting": list(self.waiting)} if self.holds else {})


@pytest.mark.parametrize("kept", [False, True])
def test_a_buffer_of_a_stream_that_its_state_leaves_out_is_named_once(kept: bool) -> None:
    stream, looking, found = Shuffled(kept=kept), Buffers(), list[str]()
    samples, other = iter(stream), iter(Shuffled(kept=kept))
    for _ in range(5):
        looking.before(stream, samples)
        assert next(samples) == next(other)
        found += looking.after(stream.state_dict)
    assert found == ([] if kept else ["waiting"])
