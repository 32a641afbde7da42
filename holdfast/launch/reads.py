"""Notice which variables of the environment code reads, and which it sets.

A module keeps what it reads while it is imported. An interpreter that has it preloaded can only serve members
for which those variables are the same. Reads by C code are not seen. Standard library only."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALL = "*"
"""Noted when all variables were read."""

_noted: set[str] = set()


class _Noting(os._Environ):  # type: ignore[type-arg]
    """`os.environ`, noting which variables are read from it."""

    def __getitem__(self, key: Any) -> Any:
        _noted.add(str(key))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        _noted.add(ALL)
        return super().__iter__()


@contextmanager
def noted() -> Iterator[set[str]]:
    """The names of the variables that are read within; ALL among them if all were."""
    plain = type(os.environ)
    _noted.clear()
    os.environ.__class__ = _Noting
    try:
        yield _noted
    finally:
        os.environ.__class__ = plain


def watch_writes(values: Mapping[str, str | None], report: Callable[[str], None]) -> None:
    """Call `report` with the name, once each, of a variable that is set to another value than here.

    One that is removed counts when the next module is imported without it: libraries clear all of the
    environment for a moment and put it back (accelerate does, for each Accelerator)."""
    reported: set[str] = set()
    removed: set[str] = set()

    def late(name: str) -> None:
        if name not in reported:
            reported.add(name)
            report(name)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and removed:
            gone = [name for name in removed if name not in os.environ]
            removed.clear()
            for name in gone:
                late(name)
        elif event == "os.putenv":
            name, value = map(os.fsdecode, arguments)
            removed.discard(name)
            if name in values and value != values[name]:
                late(name)
        elif event == "os.unsetenv":
            name = os.fsdecode(arguments[0])
            if values.get(name) is not None:
                removed.add(name)

    sys.addaudithook(hook)
