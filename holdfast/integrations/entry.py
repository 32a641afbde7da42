"""Enter the function around a script's own loop again in every generation: `elastic` of an integration."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdfast.errors import SessionError
from holdfast.integrations.own_loop import LoopMemory, OwnLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.session import Session

P = ParamSpec("P")
R = TypeVar("R")


class LoopEntry:
    """What an integration knows of the function that it decorates.

    `connect(cpu)`: the session of this process, prepared; None without an agent. In words: `what` the
    integration is, `how` it keeps a scheduler, and how to `keep` another object."""

    def __init__(self, connect: Callable[[bool], Session | None], what: str, how: str, keep: str) -> None:
        self._connect, self._what, self._how, self._keep = connect, what, how, keep
        self._memory = LoopMemory()
        self._loop: OwnLoop | None = None

    @property
    def loop(self) -> OwnLoop:
        """The loop of the function that runs. Raises SessionError outside of one."""
        if self._loop is None:
            raise SessionError(f"{self._what}: make it in a function under @elastic of the same module")
        return self._loop

    @overload
    def elastic(self, function: Callable[P, R], *, cpu: bool = False) -> Callable[P, R]: ...

    @overload
    def elastic(
        self, function: None = None, *, cpu: bool = False
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def elastic(self, function: Callable[P, R] | None = None, *, cpu: bool = False) -> Any:
        """Decorate the function that sets everything up and trains; Holdfast enters it again in every
        generation.

        `cpu`: train on the CPU, on a machine with GPUs: `@elastic(cpu=True)`. Without an agent the function
        is called as it is."""
        if function is None:
            return functools.partial(self.elastic, cpu=cpu)
        given = function

        @functools.wraps(given)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            session = self._connect(cpu)
            if session is None:
                return given(*args, **kwargs)
            self._memory = self._memory.of_next()
            entered = functools.wraps(given)(functools.partial(self._enter, session, given))
            result = session.elastic(entered)(*args, **kwargs)
            if self._memory.log is not None:
                self._memory.log.finish()
            return result

        return called

    def _enter(self, session: Session, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        self._loop = loop = OwnLoop(session, self._memory, self._what, self._how, self._keep)
        forgotten = session.runtime.forgotten
        forgotten.keep, forgotten.things = self._keep, list
        session.runtime.beginnings.settings = loop.settings
        try:
            result = function(*args, **kwargs)
            loop.finish()
            return result
        finally:
            self._loop = None
