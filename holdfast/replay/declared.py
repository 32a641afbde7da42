"""Keep the function that a script declares as its step, and since when steps were nothing but its calls.

Only such steps can be run again: what the script does to the state outside of the function would be missing.
Writes are noticed by the parameters' version counters, which costs one read per parameter and step; writes
through `.data` are not counted."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rank_state import RankState

R = TypeVar("R")


class DeclaredStep:
    """The declared function of one rank. It is that of the newest step, whichever was declared last."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._function: Callable[[], object] | None = None
        self._first = 0  # since this step, steps were nothing but calls of the function
        self._newest = (0, -1)  # generation and step of its newest call
        self._versions: list[int] = []  # of the parameters, after that

    @property
    def function(self) -> Callable[[], object] | None:
        """The function as the script wrote it; None: no step of this generation has called one."""
        return self._function

    def declare(self, function: Callable[[], R]) -> Callable[[], R]:
        """The function in a wrapper that the script calls. Raises SessionError if it takes arguments."""
        if not callable(function):
            raise SessionError(f"step_function: {function!r:.80} cannot be called")
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise SessionError(
                f"step_function: it is called without arguments, so that it can be called again: {error}. "
                "Let it take its samples by session.sample_indices(...)"
            ) from error

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> R:
            if args or options:
                raise SessionError("step_function: call it without arguments")
            return function() if self._state.replaying else self._call(function)

        return called

    def since(self) -> int:
        """The first of the steps before now that were nothing but calls of the function; the number of
        completed steps, if the newest one was not."""
        state = self._state
        whole = self._newest == (state.generation, state.completed - 1)
        return self._first if whole and self._versions == state.guard.versions() else state.completed

    def leave(self) -> None:
        """Leave the generation: the function refers to its groups."""
        self._function, self._newest, self._versions = None, (0, -1), []

    def _call(self, function: Callable[[], R]) -> R:
        state = self._state
        now = (state.generation, state.completed)
        if self._newest != (now[0], now[1] - 1) or self._versions != state.guard.versions():
            # Begun anew; after a second call in one step, or one outside of a step, only with the next step.
            self._first = now[1] + (self._newest == now or not state.guard.left_half)
        result = function()
        self._function, self._newest, self._versions = function, now, state.guard.versions()
        return result
