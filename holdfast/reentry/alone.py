"""Run an elastic function without an agent: one pass, in torchrun's process group if there is one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from holdfast.ipc.formation import Resume
from holdfast.reentry import step_loop, stepping

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.reentry.runtime import Runtime

R = TypeVar("R")


def run(runtime: Runtime, name: str, function: Callable[[], R]) -> R:
    """Run the function. If it raises, it is over too, and the next function counts its own steps."""
    state = runtime.state
    known = state.functions
    known.call(name)
    state.completed = known.base
    state.entry.inside, state.entry.counted = True, 0
    state.entry.tracks_inside = not state.tracked.objects
    own = state.world_size > 1 and not dist.is_initialized()
    try:
        if own:
            dist.init_process_group(state.backend)
        if dist.is_initialized():
            state.rank, state.world_size = dist.get_rank(), dist.get_world_size()
        runtime.formations.formed()
        state.entry.pending = functools.partial(_begin, runtime)
        if not state.entry.tracks_inside:
            stepping.restore(runtime)
        return function()
    finally:
        step_loop.drop(runtime)
        runtime.streams.leave()
        state.entry.inside, state.entry.pending = False, None
        known.leave(name, state.completed)
        stepping.between(state)
        runtime.formations.left()
        if state.entry.tracks_inside:
            state.tracked.objects.clear()
        if own and dist.is_initialized():
            dist.destroy_process_group()


def _begin(runtime: Runtime) -> None:
    stepping.put_in_place(runtime, Resume("fresh", 0, 0), 0)
    runtime.state.guard.arm()
