"""Remember the first state of iterable data sets that the script itself has made, and not a function.

Such an object outlives generations and functions, while a process that comes later has a new one. So its
first state is kept: a generation without a state of the stream, and each further function, begin with it."""

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
    """One object. `state`: in which the script gave it; `left`: in which the newest batch has left it, None
    while one is drawn."""

    reference: Callable[[], Any]
    functions: Functions
    called: int  # which of them reads it
    state: bytes
    left: bytes | None = None


_given: dict[int, _Given] = {}  # of this process, whatever sessions it has; by id


def begin(thing: Any, functions: Functions, now: Callable[[], bytes]) -> bytes | None:
    """A loader opens this object. Returns the state that the object begins with where none of its stream is
    kept; None: as it is. `now` gives its present state. Raises SessionError when nobody knows how it
    began."""
    known = _of(thing)
    if known is None:
        _given[id(thing)] = _Given(_watch(thing), functions, functions.called, now())
        return None
    if (known.functions, known.called) != (functions, functions.called):
        if now() not in (known.state, known.left):
            raise SessionError(
                f"session.loader: this {type(thing).__name__} was read in another elastic function, and "
                "stands neither where it was given nor where that has left it: a process that joins later "
                "cannot come to that. Give a function (dp_rank, dp) that makes one for each elastic function"
            )
        known.functions, known.called = functions, functions.called
    return known.state


def left(thing: Any, state: bytes | None) -> None:
    """In which state a batch has left it; None: one is drawn now."""
    known = _of(thing)
    if known is not None:
        known.left = state


def _of(thing: Any) -> _Given | None:
    known = _given.get(id(thing))
    return known if known is not None and known.reference() is thing else None


def _watch(thing: Any) -> Callable[[], Any]:
    """A reference to the object for as long as it lives; one that cannot be watched stays."""
    key = id(thing)
    try:
        return weakref.ref(thing, lambda _: _given.pop(key, None))
    except TypeError:
        return lambda: thing
