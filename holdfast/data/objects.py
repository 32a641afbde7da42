"""Remember the first state of iterable data sets that are objects of the script, not made by a function.

Such an object outlives generations and elastic functions, while a process that joins late has a new one. So
its first state is kept. A generation without a state of the stream, and each further elastic function, begin
with it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.state.functions import Functions


@dataclass(slots=True)
class _Given:
    """One object.

    - `reference`: returns the object, or None if it is gone.
    - `functions`, `called`: which elastic function reads it.
    - `state`: its state when the script gave it.
    - `left`: its state after the newest batch; None while one is drawn."""

    reference: Callable[[], Any]
    functions: Functions
    called: int
    state: bytes
    left: bytes | None = None


_given: dict[int, _Given] = {}  # by id, for all sessions of this process


def begin(thing: Any, functions: Functions, now: Callable[[], bytes]) -> bytes | None:
    """Open an object for a loader.

    Returns the state that it begins with, if no position of its stream is kept; None: the state that it has.
    `now` returns its present state. Raises SessionError if its first state cannot be known."""
    known = _of(thing)
    if known is None:
        _given[id(thing)] = _Given(_watch(thing), functions, functions.called, now())
        return None
    if (known.functions, known.called) != (functions, functions.called):
        if now() not in (known.state, known.left):
            raise SessionError(
                f"session.loader: this {type(thing).__name__} was read in another elastic function and moved "
                "since, so a process that joins later cannot bring it to the same position. Give a "
                "function (dp_rank, dp) that makes one for each elastic function"
            )
        known.functions, known.called = functions, functions.called
    return known.state


def left(thing: Any, state: bytes | None) -> None:
    """Note in which state a batch has left the object; None: a batch is being drawn."""
    known = _of(thing)
    if known is not None:
        known.left = state


def _of(thing: Any) -> _Given | None:
    known = _given.get(id(thing))
    return known if known is not None and known.reference() is thing else None


def _watch(thing: Any) -> Callable[[], Any]:
    """A reference to the object while it lives; an object that allows no weak reference is kept alive."""
    key = id(thing)
    try:
        return weakref.ref(thing, lambda _: _given.pop(key, None))
    except TypeError:
        return lambda: thing
