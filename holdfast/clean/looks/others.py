"""List what objects hold whose classes the script has not written, as far as steps may change it.

What a script has put into them: data sets and samplers of torch's, queues, mappings of the standard library,
iterators that read others. And, of other packages, what such an object tells about itself: that it has a
state (`state_dict`), that it is an environment (`reset` and `step`), that it learns (`partial_fit`), or that
it draws random numbers, by a generator of its own. Everything else in their objects is theirs: caches, bars
that count, connections."""

from __future__ import annotations

import collections
import configparser
import csv
import functools
import gc
import itertools
import sys
import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, Dataset, Sampler

from holdfast.state import randomness

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types of values that are told by themselves: not objects that could be changed."""
_READING: tuple[type[Any], ...] = (enumerate, zip, map, filter, itertools.cycle, itertools.chain)
_READING += (itertools.islice, itertools.zip_longest, itertools.accumulate, itertools.starmap)
_READING += (itertools.pairwise, itertools.takewhile, itertools.dropwhile, itertools.groupby)
_READING += (itertools.compress, type(itertools.tee(())[0]), type(iter(int, 1)), MappingProxyType)
_READING += (type(csv.reader(())), csv.DictReader)
"""Objects that read others: those know where they are."""
_HOLDING: dict[type[Any], str] = {
    collections.UserDict: "data",
    collections.UserList: "data",
    collections.ChainMap: "maps",
    weakref.WeakKeyDictionary: "data",
    weakref.WeakValueDictionary: "data",
    configparser.ConfigParser: "_sections",
}
"""Classes of the standard library, and where their objects hold what they were given."""
_TELLING = (("state_dict", "load_state_dict"), ("reset", "step"), ("partial_fit",))
"""Methods by which an object of another package tells that it changes in the steps that use it."""
_KNOWN = ("torch", "torchmetrics", "accelerate", "lightning", "transformers", "holdfast")
"""Packages whose objects are kept, or looked at, in other ways. Not others whose names begin so (torchrl)."""


def held_by(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What this object holds, with names."""
    kind: Any = type(value)
    if kind in _READING:
        yield from ((name, each) for each in gc.get_referents(value))
    elif issubclass(kind, DataLoader):
        yield f"{name}.dataset", value.dataset
    elif issubclass(kind, Dataset | Sampler) and kind.__module__.startswith("torch.utils.data."):
        yield from ((f"{name}.{key}", item) for key, item in vars(value).items() if type(item) not in PLAIN)
    elif kind.__module__ == "holdfast.session":
        own = ((key, item) for key, item in vars(value).items() if not key.startswith("_"))
        yield from ((f"{name}.{key}", item) for key, item in own)
    elif kind.__module__.startswith("holdfast.data."):
        yield from getattr(value, "from_script", dict)().items()
    elif held := _holding(kind):
        yield f"{name}.{held}", getattr(value, held, None)
    elif not _is_known(kind):
        yield from _of_package(name, value)


def _of_package(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object of another package tells about itself. No code of its own is run."""
    kind: Any = type(value)
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has none
        return
    for key, item in list(own.items()) if type(own) is dict else ():
        if _tells(kind) or randomness.is_generator(item):
            yield f"{name}.{key}", item


def metric_states(module: Any) -> Iterator[tuple[str, Any, bool]]:
    """What a metric of torchmetrics adds up: names, values, and whether its state_dict has them. A module
    that is none has nothing of that."""
    states, persistent = (vars(module).get(name) for name in ("_defaults", "_persistent"))
    for name in states if isinstance(states, dict) else ():
        yield name, getattr(module, name, None), isinstance(persistent, dict) and bool(persistent.get(name))


def has_numbers(kind: Any) -> bool:
    """Whether the numbers in a module of this class count: settings of torch's own (the rate of a dropout),
    and what those of other packages count in their attributes, which no state has."""
    return kind.__module__.startswith("torch.nn.") or not _is_known(kind)


@functools.cache
def _is_known(kind: Any) -> bool:
    return kind.__module__.partition(".")[0] in _KNOWN


@functools.cache
def _holding(kind: Any) -> str:
    return next((key for base, key in _HOLDING.items() if issubclass(kind, base)), "")


@functools.cache
def _tells(kind: Any) -> bool:
    names = {name for each in kind.__mro__ for name in vars(each)}
    return kind.__module__.partition(".")[0] not in sys.stdlib_module_names and any(
        names.issuperset(each) for each in _TELLING
    )


def is_restarting(value: Any) -> bool:
    """Whether this is a DataLoader of torch's, or an iterator of one, that the session knows nothing of."""
    if not is_loader(value):
        return False
    samplers = (getattr(value, name, None) for name in ("batch_sampler", "_index_sampler"))
    # Not by their truth: a sampler may have no length.
    return not any(type(each).__module__.startswith("holdfast.") for each in samplers)


def is_loader(value: Any) -> bool:
    """Whether this is a DataLoader, or an iterator of one."""
    kinds = [kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith("torch.utils.data")]
    return bool({"DataLoader", "_BaseDataLoaderIter"} & set(kinds))
