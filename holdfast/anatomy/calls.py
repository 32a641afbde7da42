"""Time the forward and backward passes of the script's modules, without any code of the script.

Forward: the modules that are watched (tracked ones, and what `session.ddp` returns) are called through a
function in the place that torch has for the compiled form of a module's call (`Module.compile`). It is there
in measured steps only, so that the others do not pay for it. Unlike hooks, it leaves copies, pickles and
exports of the module alone, and no guard of compiled code looks at that place; within a compiled region it is
the plain call. A module called within another one's call, or not in train mode, is not timed.

Backward: a hook before the node of the graph that made an output begins the pass, and queues a callback in
the autograd engine. It runs when all gradients are computed, and queues the next: callbacks run in the order
in which they were queued, so DDP's, which waits for the other ranks, comes in between. (Two more, because DDP
with `static_graph` queues its own from within another one.) Checkpointing that calls a watched module again
within the backward pass is part of that pass.

Like torch's own compiled forms, the function belongs to one module: replicas of `nn.DataParallel` would call
the module that they were copied from."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling, is_dynamo_compiling

from holdfast.anatomy import policy
from holdfast.anatomy.phases import BACKWARD, FORWARD, LOSS, OPTIMIZER, OTHER, REDUCTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.anatomy.recorder import StepRecorder

_PLACE = "_compiled_call_impl"
_NO_TASK = -1
_engine: Any = torch.autograd.Variable._execution_engine
_task: Callable[[], int] = torch._C._current_graph_task_id


@dataclasses.dataclass(slots=True)
class WatchedModule:
    """A module whose calls are timed in measured steps."""

    module: weakref.ref[torch.nn.Module]
    call: Any = None  # what is called then
    before: Any = None  # and otherwise: its compiled form; None: it has none

    def leave(self, place: dict[str, Any]) -> None:
        """Put back what was there. `place`: the module's attributes."""
        if self.before is None:
            del place[_PLACE]
        else:
            place[_PLACE] = self.before


class ModuleCalls:
    """The module calls and backward passes of one session."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._recorder = recorder
        self._watched: list[WatchedModule] = []
        self._inside = False  # a watched module is being called
        self._backward = _NO_TASK  # the engine's task of the backward pass that runs
        recorder.on_measuring = self._measures

    def watch(self, module: torch.nn.Module) -> None:
        """Time this module's calls until `close`; those of its children if it cannot be called itself."""
        if not self._recorder.on or isinstance(module, torch.jit.ScriptModule):
            return
        if type(module).forward is torch.nn.Module.forward and "forward" not in vars(module):
            for child in module.children():
                self.watch(child)
            return
        self._watched = [each for each in self._watched if each.module() is not None]
        if all(each.module() is not module for each in self._watched):
            self._watched.append(WatchedModule(weakref.ref(module)))
            self._measures(self._recorder.measuring)

    def close(self) -> None:
        """Give the modules back as they were."""
        self._measures(False)
        self._watched = []

    def _measures(self, measuring: bool) -> None:
        """Begin to time calls, or give the modules back as they were."""
        for each in self._watched:
            module = each.module()
            if module is None:
                continue
            place = module.__dict__
            there = place.get(_PLACE)
            if not measuring:
                if there is not None and there is each.call:  # else the script has compiled it meanwhile
                    each.leave(place)
            elif there is None or there is not each.call:
                if each.call is None or there is not each.before:
                    each.call, each.before = self._timed(each.module, there), there
                place[_PLACE] = each.call

    def _timed(self, module: weakref.ref[torch.nn.Module], before: Any) -> Callable[..., Any]:
        """The call of a module, timed. `before`: its compiled form; None: it has none."""
        recorder, time_call = self._recorder, self._time

        def call(*args: Any, **kwargs: Any) -> Any:
            run = before or module()._call_impl  # type: ignore[union-attr]  # it is being called
            # First what dynamo knows without looking: the rest is then in no guard of compiled code.
            if is_dynamo_compiling() or not recorder.measuring or is_compiling():
                return run(*args, **kwargs)
            return time_call(module(), run, args, kwargs)

        return call

    # ------------------------------------------------------------------ forward

    def _time(self, module: Any, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        recorder = self._recorder
        if self._inside or recorder.depth or not module.training or threading.get_ident() != recorder.owner:
            return run(*args, **kwargs)
        if _task() != _NO_TASK:
            self._begin_backward()
            return run(*args, **kwargs)
        self._inside, self._backward = True, _NO_TASK
        if recorder.facts is not None and torch.is_autocast_enabled("cuda"):
            recorder.facts.autocast = torch.get_autocast_dtype("cuda")
        recorder.settle(backward=True)
        recorder.switch(FORWARD)
        awaited = False
        try:
            output = run(*args, **kwargs)
            awaited = self._await_gradients(output)
        finally:
            self._inside = False
            recorder.calls += 1
            recorder.switch(LOSS if awaited else recorder.base)
        return output

    def _await_gradients(self, output: Any) -> bool:
        """Hook the outputs' nodes. Whether there is one."""
        hooked: list[Any] = []
        for tensor in tensors_in(output, policy.DEPTH_MAX):
            node = tensor.grad_fn
            if node is not None and not any(node is other for other in hooked):
                node.register_prehook(self._gradient)
                hooked.append(node)
                if len(hooked) == policy.OUTPUTS_MAX:
                    break
        return bool(hooked)

    # ------------------------------------------------------------------ backward

    def _gradient(self, _gradients: Any) -> None:
        """A gradient has arrived at an output."""
        if self._recorder.measuring and not self._inside and not self._recorder.depth:
            self._begin_backward()

    def _begin_backward(self) -> None:
        if self._backward != _NO_TASK:
            return
        self._backward = _task()
        self._recorder.settle(backward=True)
        self._recorder.switch(BACKWARD)
        _engine.queue_callback(self._computed)

    def _computed(self) -> None:
        """All gradients of this rank are computed."""
        if self._backward != _NO_TASK:
            self._recorder.switch(REDUCTION)
            _engine.queue_callback(lambda: _engine.queue_callback(self._reduced))

    def _reduced(self) -> None:
        """DDP has the gradients of the other ranks too."""
        if self._backward != _NO_TASK:
            self._backward = _NO_TASK
            self._recorder.passes += 1
            self._recorder.switch(self._recorder.base)

    # ------------------------------------------------------------------ optimizer

    def optimizer_begins(self) -> None:
        """An optimizer begins its step. Only in a measured step."""
        self._move(OPTIMIZER)

    def optimizer_ends(self) -> None:
        """It has ended."""
        self._move(OTHER)

    def _move(self, base: int) -> None:
        recorder = self._recorder
        if not recorder.depth:
            self._backward, self._inside = _NO_TASK, False
            recorder.settle(backward=False)
            recorder.base = base
            recorder.switch(base)


def tensors_in(output: Any, depth: int) -> Iterator[torch.Tensor]:
    """The tensors in what a module returns."""
    if isinstance(output, torch.Tensor):
        yield output
    elif depth > 0:
        parts: Any = ()
        if isinstance(output, Mapping):
            parts = list(output.values())
        elif isinstance(output, list | tuple):
            parts = output
        elif dataclasses.is_dataclass(output):
            parts = [getattr(output, field.name) for field in dataclasses.fields(output)]
        for part in parts:
            yield from tensors_in(part, depth - 1)
