"""Read a loader's batches from a position of an epoch on, with the samples and random numbers of there.

A sampler is asked for indices with random numbers that depend on (seed, epoch, batch) alone, and so are
samples that bring their seeds: however often the training starts again, a batch is the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler

from holdfast.clean.looks.reach import PLAIN, is_scripts, reached
from holdfast.data.own_generators import OwnGenerators
from holdfast.data.seeding import PreservedGenerators, drawn, seed_all
from holdfast.errors import SessionError
from holdfast.integrations.own_attributes import is_framework
from holdfast.state import randomness

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES = ("torch", "accelerate")
_APART = 40
"""Bits that a rank's number is shifted by, so that its seeds meet those of no other rank."""


class PlacedSampler:
    """Indices from a position of an epoch on. `tagged`: each index brings the seed of its sample.

    `apart`: a number, of the rank, that keeps the samples' seeds apart from those of other numbers."""

    def __init__(self, sampler: Any, seed: int, *, tagged: bool, apart: int = 0) -> None:
        self.sampler = getattr(sampler, "sampler", sampler)  # Lightning looks for the inner one
        self._inner, self._seed, self._tagged = sampler, seed, tagged
        self.apart = apart
        self.epoch = self.position = 0

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        epoch, position, batch = self.epoch, self.position, 0
        found, own = iter(self._inner), OwnGenerators(self._inner)
        while True:
            with PreservedGenerators():
                own.seed(seed_all(self._seed, epoch, batch))
                try:
                    indices = next(found)
                except StopIteration:
                    return
            if batch >= position:
                yield self._tag(indices, epoch, batch) if self._tagged else indices
            batch += 1

    def _tag(self, indices: Any, epoch: int, batch: int) -> Any:
        many = indices if isinstance(indices, list | tuple) else [indices]
        seed = (self._seed ^ (self.apart << _APART)) + epoch
        tags = [(index, (seed, batch, place)) for place, index in enumerate(many)]
        return tags if isinstance(indices, list | tuple) else tags[0]


class TaggedSamples(torch.utils.data.Dataset[Any]):
    """A map data set that is asked for samples that bring their seeds, also those for `collate`."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        self._dataset, self._own = dataset, OwnGenerators(dataset, collate)
        if getattr(dataset, "__getitems__", None) is not None:
            self.__getitems__ = self._many

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, tagged: Any) -> Any:
        index, seed = tagged
        return drawn(self._own, seed, self._dataset.__getitem__, index)

    def _many(self, tagged: list[Any]) -> Any:
        indices = [index for index, _ in tagged]
        return drawn(self._own, tagged[0][1], self._dataset.__getitems__, indices)


class SeededStream(torch.utils.data.IterableDataset[Any]):
    """An iterable data set whose samples are drawn with numbers from (seed, epoch, place), equal on all
    ranks: however often it is read from the beginning, it gives the same."""

    def __init__(self, dataset: Any, collate: Any, seed: int, epoch: int) -> None:
        self._dataset, self._own = dataset, OwnGenerators(dataset, collate)
        self._seed, self._epoch = seed, epoch

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        found, place = iter(self._dataset), 0
        while True:
            with PreservedGenerators():
                self._own.seed(seed_all(self._seed, self._epoch, place))
                try:
                    sample = next(found)
                except StopIteration:
                    return
            yield sample
            place += 1


def sampler_name(loader: Any) -> str:
    """The attribute of a DataLoader that gives it the indices of each batch, or of each sample."""
    return "sampler" if loader.batch_sampler is None else "batch_sampler"


def order_of(loader: Any) -> Any:
    """The sampler that a DataLoader's order comes from: behind the batch samplers of torch and accelerate. A
    batch sampler of another kind may order what it is given."""
    found = getattr(loader, sampler_name(loader))
    while isinstance(found, BatchSampler) and type(found).__module__.partition(".")[0] in _LIBRARIES:
        inner = vars(found)  # accelerate's shard has a sampler only if it was given one
        found = inner["sampler"] if "sampler" in inner else inner["batch_sampler"]
    return found


def counting_samplers(loader: Any) -> list[Any]:
    """The script's own samplers of a DataLoader, also behind Lightning's wrappers, that nobody tells the
    epoch: if they count it themselves, they begin anew in a process that takes a dead rank's place."""
    pending: list[Any] = [loader.batch_sampler, loader.sampler]
    found: dict[int, Any] = {}
    while pending:
        each = pending.pop()
        if each is None or type(each).__module__ == "builtins":
            continue
        pending += [getattr(each, name, None) for name in ("batch_sampler", "sampler")]
        pending.append(getattr(getattr(each, "dataset", None), "_sampler", None))
        if not (is_framework(type(each)) or hasattr(each, "set_epoch")):
            found[id(each)] = each
    return list(found.values())


def own_data(dataset: Any, collate: Any) -> list[Any]:
    """The script's own objects that give samples: data sets, also behind those of frameworks (Subset), and
    what collates. What a callback sets there (the size of images in this epoch) is kept by nobody."""
    return [each for each in _layers(dataset, collate) if not is_framework(type(each))]


def data_values(dataset: Any) -> Iterator[tuple[str, Any]]:
    """What a data set is made of, with names: what the script's own objects hold, tensors and positions of
    torch's, how many samples there are. Of several of one class, the second one's names have a (2)."""
    of_class: Counter[str] = Counter()
    for each in _layers(dataset):
        of_class[kind := type(each).__name__] += 1
        name = f"data set {kind}" + (f" ({of_class[kind]})" if of_class[kind] > 1 else "")
        held = getattr(each, "__dict__", {})
        parts = {f"{name}.{key}": held[key] for key in ("tensors", "indices") if key in held}
        yield from reached((), (), parts if is_framework(type(each)) else {name: each})
        if hasattr(type(each), "__len__"):
            yield f"len({name})", len(each)


def called_values(name: str, called: Any) -> Iterator[tuple[str, Any]]:
    """Which function or object a framework is to call, with names, and the settings that it holds."""
    yield from reached((), (), {name: called})
    if not is_scripts(type(called).__module__):  # a collator of the framework's: its options are plain
        own = getattr(called, "__dict__", {}).items()
        yield from ((f"{name}.{key}", value) for key, value in own if type(value) in PLAIN)


def _layers(*data: Any) -> list[Any]:
    """These objects, and the data sets behind them."""
    pending, found = list(data), dict[int, Any]()
    while pending:
        each = pending.pop()
        if each is None or id(each) in found or type(each).__module__ == "builtins":
            continue
        pending += [*reversed(getattr(each, "datasets", None) or ()), getattr(each, "dataset", None)]
        found[id(each)] = each
    return list(found.values())


def seed_evaluation(loader: Any, seed: int, step: int, rank: int) -> None:
    """Seed what a loader for an evaluation draws from: it is opened in this step, by this rank."""
    end_workers(loader)
    OwnGenerators(loader.dataset, loader.collate_fn).seed(randomness.mixed(seed, step, rank))


def end_workers(loader: Any) -> None:
    """Have persistent workers started anew. They keep the sampler, the data set and the random numbers that
    they have, and a process that takes a dead rank's place has others."""
    held = vars(loader)
    inner = held.get("base_dataloader", held.get("_dataloader", loader))  # accelerate's, Fabric's
    running = getattr(inner, "_iterator", None)
    if running is not None:
        running._shutdown_workers()
        inner._iterator = None


def refuse_late(collate: Any) -> None:
    """Raise SessionError for a collate function of transformers whose generator is made at its first call."""
    if getattr(collate, "seed", None) is not None and hasattr(collate, "create_rng"):
        raise SessionError(
            f"{type(collate).__name__}(seed=...) is not supported under Holdfast: its generator begins anew "
            "in a process that takes a dead rank's place. Leave seed out: Holdfast seeds each batch"
        )


def set_attributes(loader: Any, values: dict[str, Any]) -> None:
    """Set attributes that DataLoader refuses to have set after it was made."""
    for name, value in values.items():
        object.__setattr__(loader, name, value)


class PlacedLoader:
    """Opens one DataLoader of a map data set, for the rank `apart`, in any of its epochs at any position.

    Its samples bring their seeds, so a loop may fetch ahead; fetch within PreservedGenerators. Persistent
    workers keep the sampler that they were started with: use one object for all epochs."""

    def __init__(self, loader: Any, seed: int, apart: int) -> None:
        name = sampler_name(loader)
        refuse_late(loader.collate_fn)
        self._loader, self._seed = loader, seed
        self._own = {name: getattr(loader, name), "dataset": loader.dataset}
        self._placed = PlacedSampler(self._own[name], seed, tagged=True, apart=apart)
        self._instead = {name: self._placed, "dataset": TaggedSamples(loader.dataset, loader.collate_fn)}

    def place(self, epoch: int, position: int) -> None:
        """Go on after `position` batches of this epoch, when it is opened next."""
        self._placed.epoch, self._placed.position = epoch, position

    def open(self) -> Iterator[Any]:
        """The batches from there on."""
        seed_all(self._seed, self._placed.epoch, 0)
        try:
            set_attributes(self._loader, self._instead)
            return type(self._loader).__iter__(self._loader)  # type: ignore[no-any-return]
        finally:
            set_attributes(self._loader, self._own)
