"""Know the DataLoaders that a script reads on from step to step, besides those that Holdfast opens.

The position of such a loader is in no state: in a new generation, or in a process that takes a dead rank's
place, it begins anew. Its iterator may be in a variable, or behind a `zip` that nothing names: so it is
looked for among all objects."""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data.dataloader import _BaseDataLoaderIter


class ReadLoaders:
    """The iterators of DataLoaders that were there at the newest look."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()
        self._made = 0

    def positions(self) -> dict[str, int]:
        """How many batches each has given, by the kind of its data set and a number: what differs at the next
        look was read on. One that is opened anew, also with persistent workers, has another number."""
        found: dict[str, int] = {}
        for each in gc.get_objects():
            if issubclass(type(each), _BaseDataLoaderIter) and not _is_placed(each):
                name = f"DataLoader({type(each._dataset).__name__})[{self._number(each)}]"
                found[name] = each._num_yielded
        return found

    def _number(self, iterator: Any) -> int:
        """A number of its own, for the order that it reads now."""
        order, number = self._numbers.get(iterator, (None, 0))
        if not number or order is not iterator._sampler_iter:
            number = self._made = self._made + 1
            self._numbers[iterator] = iterator._sampler_iter, number
        return number


def _is_placed(iterator: Any) -> bool:
    """Whether Holdfast has opened it, at a position that is kept."""
    kinds = type(iterator._dataset), type(iterator._index_sampler)
    return any(kind.__module__.startswith("holdfast.") for kind in kinds)
