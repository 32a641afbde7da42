"""Guard the collectives that C++ waits for: those of DDP's reducer over gloo.

DDP's reducer waits in C++ for the future of each bucket's all-reduce. If gloo forgets an operation that was
half transferred when its connection ended (see `waiting`), that future never completes, and nothing can end
the wait. So DDP receives a process group that passes each collective on to the real one, and returns work
whose future is completed here: by the real operation when it ends, else by `give_up`, once the groups are
broken. Nothing else changes: the same collectives, in the same order, on the same tensors.

An operation that was given up keeps its group alive until gloo's timeout, because a group's end waits for its
operations."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._compile import _disable_dynamo  # torch.compiler.disable would import dynamo here: a second
from torch.distributed import distributed_c10d

from holdfast.errors import CollectiveFailed
from holdfast.groups.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable


class OpenOperations:
    """The futures that C++ may wait for. gloo's threads complete them; the agent client's thread gives them
    up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[_Operation, None] = {}

    def add(self, operation: _Operation) -> None:
        """Note that C++ may wait for this operation from now on."""
        with self._lock:
            self._open[operation] = None

    def end(self, operation: _Operation) -> bool:
        """Whether the operation was open until now. If so, the caller alone must complete its future."""
        with self._lock:
            return self._open.pop(operation, self) is None

    def give_up(self) -> None:
        """The groups are broken: fail every operation that has not ended."""
        with self._lock:  # an operation that ends from here on finds the groups that it is to release
            left, self._open = list(self._open), {}
            for operation in left:
                operation.keep_groups()
        for operation in left:
            operation.fail()


class _Operation:
    """One collective. `future` is what C++ waits for."""

    def __init__(self, work: dist.Work, awaited: OpenOperations) -> None:
        self._awaited, self._work = awaited, work
        # Groups kept alive for an operation that was given up, until it ends after all.
        self._groups: list[Any] = []
        self._outcome: torch.futures.Future[Any] = torch.futures.Future()
        self.future = self._outcome.then(_unwrap)  # an exception in `then` reaches C++ as an error too
        awaited.add(self)
        work.get_future().add_done_callback(self._ended)

    def _ended(self, real: torch.futures.Future[Any]) -> None:
        if self._awaited.end(self):
            try:
                outcome: Any = real.value()
            except Exception as error:  # raised again in `_unwrap`
                outcome = error
            self._outcome.set_result(outcome)
        elif self._groups:
            # Not in this thread: it may hold the last reference to its own group.
            Waiter.begin(self._groups.clear)

    def keep_groups(self) -> None:
        """Keep the groups alive until the real operation has ended: their end would wait for it."""
        self._groups += distributed_c10d._world.pg_map

    def fail(self) -> None:
        """It will not end in time: its waiter gets an error that names CollectiveFailed."""
        self._outcome.set_result(CollectiveFailed("a collective did not end although its group is broken"))


def _unwrap(outcome: torch.futures.Future[Any]) -> Any:
    """The operation's result, or its error as a RuntimeError."""
    value = outcome.value()
    if isinstance(value, BaseException):
        raise RuntimeError(f"{type(value).__name__}: {value}") from value
    return value


class _Work(dist.Work):
    """What C++ holds of a collective."""

    def __init__(self, work: dist.Work, awaited: OpenOperations) -> None:
        super().__init__()
        self._work, self._awaited = work, awaited
        self._operation: _Operation | None = None

    def wait(self, timeout: Any = None) -> bool:
        """Wait as Python code does (`waiting`)."""
        return bool(self._work.wait() if timeout is None else self._work.wait(timeout))

    def get_future(self) -> torch.futures.Future[Any]:
        """The future, which completes in any case."""
        if self._operation is None:
            self._operation = _Operation(self._work, self._awaited)
        return self._operation.future

    def is_completed(self) -> bool:
        """Whether the real operation has ended."""
        return self._work.is_completed()


def _handed_on(name: str) -> Callable[..., _Work]:
    """A collective that is passed on to the real group.

    C++ calls it also in the middle of a wrapper that was compiled: dynamo would trace it then, and fail."""

    @_disable_dynamo
    def collective(self: GuardedGroup, *arguments: Any) -> _Work:
        return _Work(getattr(self.real, name)(*arguments), self.awaited)

    return collective


class GuardedGroup(dist.ProcessGroup):
    """A gloo group with the collectives that DDP uses: for gradients, its check of shapes, and buffers."""

    def __init__(self, real: dist.ProcessGroup, awaited: OpenOperations) -> None:
        super().__init__(real.rank(), real.size())  # type: ignore[call-arg]  # not in torch's stubs
        self.real, self.awaited = real, awaited

    def getBackendName(self) -> str:
        """The name for DDP's logger, which would look into the internals of a group that calls itself
        gloo."""
        return "guarded-gloo"

    allreduce = _handed_on("allreduce")
    allgather = _handed_on("allgather")
    broadcast = _handed_on("broadcast")
