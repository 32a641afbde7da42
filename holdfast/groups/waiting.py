"""Wait for collectives in a way that ends when the group breaks.

gloo wakes a thread that waits for an operation when a connection it needs has ended, but not if the operation
was half transferred just then: gloo forgets such an operation, which then waits for the group's timeout. So
while a generation with gloo exists, no thread waits in torch for longer than a moment. A wait in Python
(`Work.wait`, as in `dist.send`, `recv`, `broadcast`, `all_reduce`) checks the groups now and then and gives
up when they are broken. A thread of its own holds the abandoned operation until gloo has given it up. A wait
within C++ cannot be left this way: DDP, which waits there, receives a process group of its own
(`guarded`)."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from holdfast.errors import CollectiveFailed
from holdfast.groups import torch_texts, transfer_record
from holdfast.groups.guarded import GuardedGroup, OpenOperations
from holdfast.groups.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from holdfast.groups.transfer_record import TransferRecord

_LOOK_S = 0.1
_LOOK = timedelta(seconds=_LOOK_S)
_FOR_EVER = timedelta(0)
# c10d's OpType: SEND, RECV, RECVANYSOURCE. A timeout would end their group.
_BETWEEN_TWO = frozenset({12, 13, 14})
_torch_wait = dist.Work.wait


class _Pending:
    """One operation that another thread waits for. It keeps the groups alive: their end would wait for it."""

    def __init__(self, work: dist.Work) -> None:
        self._work: dist.Work | None = work
        self._groups = list(distributed_c10d._world.pg_map)
        self._done = threading.Event()
        self._found: Any = None
        self._error: BaseException | None = None
        Waiter.begin(self._wait)

    def _wait(self) -> None:
        assert self._work is not None
        try:
            self._found = _torch_wait(self._work)
        except BaseException as error:  # raised again in `result`
            self._error = error
        self._work = None
        self._groups.clear()
        self._done.set()

    def over(self, within_s: float) -> bool:
        return self._done.wait(within_s)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._found


class Waits:
    """How this process waits during a generation. `broken` tells whether its groups carry nothing any
    more."""

    def __init__(self, broken: Callable[[], bool], transfers: TransferRecord) -> None:
        self._broken, self.transfers = broken, transfers
        self.awaited = OpenOperations()

    def wait(self, work: dist.Work) -> Any:
        """Wait until the operation is over.

        Raises what torch does, or CollectiveFailed if the groups are broken and the operation does not
        end."""
        kind = work._get_op_type()  # type: ignore[attr-defined]  # not in torch's stubs
        return self._between_two(work) if kind in _BETWEEN_TWO else self._of_all(work)

    def _of_all(self, work: dist.Work) -> Any:
        broken = False
        while True:
            try:
                return _torch_wait(work, _LOOK)
            except RuntimeError as error:
                if not torch_texts.is_wait_over(error):
                    raise
            if broken and not work.is_completed():
                _Pending(work)
                raise CollectiveFailed("a collective did not end although its group is broken")
            broken = self._broken()

    def _between_two(self, work: dist.Work) -> Any:
        pending, broken = _Pending(work), False
        while not pending.over(_LOOK_S):
            if broken:
                raise CollectiveFailed("a transfer did not end although its group is broken")
            broken = self._broken()
        return pending.result()


_current: Waits | None = None
around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
"""What each wait of Python code is entered in; the session that runs times them with it."""


def _wait(work: dist.Work, timeout: timedelta = _FOR_EVER) -> Any:
    """Replaces torch's `Work.wait`."""
    waits = _current
    if waits is None:
        return _torch_wait(work, timeout)
    with waits.transfers.awaited(work):
        if timeout != _FOR_EVER:
            return _torch_wait(work, timeout)
        with around():
            return waits.wait(work)


def begin(broken: Callable[[], bool], transfers: TransferRecord) -> None:
    """Replace torch's wait while a generation over gloo exists, and note transfers and who waits for them.

    Nothing changes if there is a GPU: with a timeout, a wait for NCCL does something else."""
    global _current
    if not torch.cuda.is_available():
        _current = Waits(broken, transfers)
        transfers.replace_calls()
        dist.Work.wait = _wait  # type: ignore[method-assign, assignment]


def guarded(options: Mapping[str, Any]) -> dict[str, Any]:
    """DDP's options, with a process group whose collectives can be given up (`guarded`).

    They stay as they are where no generation over gloo is formed, or where a device mesh names the group."""
    group = options.get("process_group")
    if _current is None or "device_mesh" in options or dist.get_backend(group) != "gloo":
        return dict(options)
    real = group or dist.group.WORLD
    assert real is not None
    return {**options, "process_group": GuardedGroup(real, _current.awaited)}


def give_up() -> None:
    """From another thread, once the groups have been broken for a while: fail operations that have not
    ended."""
    if _current is not None:
        _current.awaited.give_up()


def end() -> None:
    """Restore torch's own wait: no generation exists."""
    global _current
    if _current is not None:
        _current = None
        transfer_record.restore_calls()
        dist.Work.wait = _torch_wait  # type: ignore[method-assign]


def neutralise() -> None:
    """In a forked child: the waiting threads are the parent's."""
    end()
    Waiter.idle.clear()
