"""Take the place of one of Lightning's loops, with everything that it has."""

from __future__ import annotations

from typing import Any, Self


class Replacing:
    """A class of ours that extends one of Lightning's loops."""

    @classmethod
    def instead_of(cls, loop: Any) -> Self:
        """One that takes the place of this loop."""
        own = cls.__new__(cls)
        own.__dict__.update(loop.__dict__)
        return own


def drop_fetcher(loop: Any) -> None:
    """Let go of the batches that a loop has been fetching; Lightning may not stop that a second time."""
    if loop._data_fetcher is not None:
        loop._data_fetcher.combined_loader.reset()
        loop._data_fetcher = None
