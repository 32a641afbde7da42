"""Have an OwnLoop lead a framework's loader of the training; until then it is exactly the framework's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from holdfast.errors import SessionError
from holdfast.integrations.own_loop import batches_of
from holdfast.integrations.placed import called_values, own_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.integrations.own_loop import OwnLoop
    from holdfast.integrations.placed import PlacedLoader


class LedLoader(ABC):
    """Stands before the framework's class among the bases of a loader.

    The loader itself says what it cannot be for (`_check`), and opens itself at a position (`_open_at`)."""

    _loop: OwnLoop | None = None
    _around: OwnLoop
    _placed: PlacedLoader | None = None
    _counter: ClassVar[str]
    """Where the framework counts how often the loader was opened: its next order follows from that."""

    @classmethod
    def instead_of(cls, loader: Any, around: OwnLoop) -> Self:
        """A loader that takes the place of the framework's, in the function around this loop."""
        own = cls.__new__(cls)
        own.__dict__.update(loader.__dict__)
        own._around = around
        return own

    def lead(self, loop: OwnLoop) -> None:
        """From now on it is the training's. Raises SessionError for one without positions."""
        self._check()
        self._loop = loop

    def __iter__(self) -> Iterator[Any]:
        if self._loop is None:
            return self._around.others(self, self._open_numbered)
        return self._loop.batches(self._open_at)

    def _open_numbered(self, number: int) -> Iterator[Any]:
        setattr(self, self._counter, number)
        return iter(super().__iter__())  # type: ignore[misc]

    def enter_epoch(self, epoch: int) -> None:
        """This epoch of the training begins: its order is the next one."""
        setattr(self, self._counter, epoch)

    @abstractmethod
    def _check(self) -> None:
        """Raise SessionError for a loader without positions."""

    @abstractmethod
    def _open_at(self, epoch: int, position: int) -> Iterator[Any]:
        """The batches of this epoch after `position` of them."""


def epochs(
    loop: OwnLoop | None, total: int, loader: Any, kind: type[LedLoader], refusal: str
) -> Iterable[int]:
    """The epochs that are left, up to `total - 1`, of a training that reads `loader`; without a loop
    `range(total)`. Raises SessionError for a loader that is no `kind`, with these words."""
    if loop is None:
        return range(total)
    if not isinstance(loader, kind):
        raise SessionError(refusal)
    loader.lead(loop)
    loop.dataset, batches = getattr(loader, "dataset", None), batches_of(loader)
    loop.data += own_data(loop.dataset, getattr(loader, "collate_fn", None))
    loop.told |= {"the number of epochs": total, "the number of batches in an epoch": batches}
    loop.told |= dict(called_values("collate_fn", getattr(loader, "collate_fn", None)))
    return told(loop.epochs(total, batches), loader)


def told(epochs: Iterator[int], loader: LedLoader) -> Iterator[int]:
    """These epochs, of each of which the loader is told."""
    for epoch in epochs:
        loader.enter_epoch(epoch)
        yield epoch
