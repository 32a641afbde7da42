"""An elastic function where there is no agent: one pass, in torchrun's process group if there is one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from holdfast.agreement import restore
from holdfast.groups.formation import Resume
from holdfast.reentry import stepping

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.session import Session

R = TypeVar("R")


def run(session: Session, name: str, function: Callable[[], R]) -> R:
    """Enter it. An exception that leaves it ends it, too: the next one counts its own steps."""
    known = session._functions
    known.call(name)
    session._completed = known.base
    session._inside = True
    session._late = not session._tracked.objects
    own = session._world_size > 1 and not dist.is_initialized()
    try:
        if own:
            dist.init_process_group(session._backend)
        if dist.is_initialized():
            session._rank, session._world_size = dist.get_rank(), dist.get_world_size()
        session._pending = functools.partial(_begin, session)
        if not session._late:
            session.restore()
        return function()
    finally:
        session._streams.leave()
        session._inside, session._pending = False, None
        known.leave(name, session._completed)
        stepping.between(session)
        if session._late:
            session._tracked.objects.clear()
        if own and dist.is_initialized():
            dist.destroy_process_group()


def _begin(session: Session) -> None:
    restore.restore(session, Resume("fresh", 0, 0), 0)
    session._guard.arm()
