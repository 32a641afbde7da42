"""Keep plain attributes of the script's own callbacks and of its own Trainer: counters, lists of losses.

Ranks may differ in them. So all exchange theirs at the end of a step's body: a process that takes a dead
rank's place gets those of that rank. What an event of the tail has changed is left in the ledger with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.integrations import plain
from holdfast.integrations.own_attributes import attributes_of, is_framework

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES_MAX, _LENGTH_MAX = 16 << 10, 2000
"""A larger attribute is not kept: all of them are exchanged in each step."""


class OwnState:
    """The attributes of some objects; `found()`: all of them, also a framework's.

    `rows`: those of all ranks when the newest step had ended; []: none has."""

    def __init__(self, found: Callable[[], list[Any]]) -> None:
        self._found = found
        self._first: str | None = None
        self.rows: list[str] = []

    def owners(self) -> list[Any]:
        """The script's own ones among the objects."""
        return [each for each in self._found() if not is_framework(type(each))]

    def capture(self) -> str:
        """The attributes as they are."""
        return plain.dumps([_kept(each) for each in self.owners()], "attributes").decode()

    def apply(self, text: str) -> None:
        """Make the attributes what they were."""
        for owner, values in zip(self.owners(), plain.loads(text.encode()), strict=True):
            for name in _kept(owner).keys() - values.keys():
                delattr(owner, name)
            for name, value in values.items():
                setattr(owner, name, value)

    def of_ranks(self, session: Any) -> list[str]:
        """Those of all ranks, which call it together."""
        return [
            row.decode() for row in plain.gather(self.capture().encode(), session.world_size, session.device)
        ]

    def entered(self, rank: int) -> None:
        """The training begins in this process, or goes on: make the attributes those of the newest step."""
        if self.rows:
            self.apply(self.rows[rank])
        elif self._first is None:
            self._first = self.capture()
        else:
            self.apply(self._first)

    def begin(self) -> None:
        """Another training begins."""
        self._first = None


def keeps(value: Any) -> bool:
    """Whether an attribute of this value is kept."""
    if isinstance(value, list | tuple | dict | str | bytes) and len(value) > _LENGTH_MAX:
        return False
    return plain.is_plain(value) and len(plain.dumps(value, "attribute")) <= _BYTES_MAX


def _kept(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes_of(owner) if keeps(value)}
