"""Find the first module whose output is not finite although its inputs are.

Hooks on every module would cost too much in every step. They are there in single steps only: after a NaN or
Inf was found, in the step that is computed again, or in the next ones. Each hook reads one number, so in
such a step the host waits for the device at every module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from holdfast.anatomy.calls import tensors_in
from holdfast.state import shards

if TYPE_CHECKING:
    from collections.abc import Callable

_DEPTH_MAX = 4
"""How deep inputs and outputs are searched for tensors."""

MODULE, WEIGHTS, INPUTS, LOSS = "module", "weights", "inputs", "loss"
"""What a trace may say: a module made it; its own parameters were not finite before; the model was given it;
what follows the model made it."""


@dataclass(frozen=True, slots=True)
class ModuleOrigin:
    """Where the first value came from that is not finite. `kind`: one of the words above; `module`: its name
    in the model, "" for the model itself; `call`: which of its calls in this step, from 1."""

    kind: str
    module: str
    type: str
    call: int = 1

    @property
    def words(self) -> str:
        """The trace as the end of a sentence."""
        name = f"module {self.module or 'the model itself'} ({self.type})"
        again = f" in its call {self.call} of the step" if self.call > 1 else ""
        return {
            MODULE: f"{name} is the first whose output is not finite although its inputs are{again}",
            WEIGHTS: f"{name} has parameters that are not finite, so an earlier step has spoiled them",
            INPUTS: f"{name} was given inputs that are not finite: the data has them",
            LOSS: f"all outputs of {name} are finite and the loss is not: what follows the model made it",
        }[self.kind]


class ModuleTrace:
    """The hooks on one model, for one step. `found` is called once, with the first trace."""

    def __init__(self, model: torch.nn.Module, found: Callable[[ModuleOrigin], None]) -> None:
        self._found, self._done = found, False
        self._model = type(model).__name__
        self._calls: dict[str, int] = {}
        self._hooks: list[Any] = []
        for name, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                hook = self._looks(name)
                self._hooks.append(module.register_forward_hook(hook, with_kwargs=True))
        self._hooks.append(model.register_forward_pre_hook(self._given(), with_kwargs=True))

    def remove(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def loss_is_bad(self) -> None:
        """Note that the loss is not finite: where the model's outputs all are, what follows made it."""
        if not self._done and self._calls.get("", 0):
            self._tell(ModuleOrigin(LOSS, "", self._model))

    def _given(self) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if not self._done and not torch.compiler.is_compiling() and not _finite((args, kwargs)):
                self._tell(ModuleOrigin(INPUTS, "", type(module).__name__))

        return hook

    def _looks(self, name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if self._done or torch.compiler.is_compiling():
                return
            call = self._calls[name] = self._calls.get(name, 0) + 1
            if _finite(output) or not _finite((args, kwargs)):
                return
            own = list(module.parameters())
            kind = MODULE if _finite(own) else WEIGHTS
            self._tell(ModuleOrigin(kind, name, type(module).__name__, call))

        return hook

    def _tell(self, trace: ModuleOrigin) -> None:
        self._done = True
        self._found(trace)


@torch.no_grad()
def _finite(values: Any) -> bool:
    """Whether all floating-point tensors in these arguments, or this output, are finite."""
    for tensor in tensors_in(values, _DEPTH_MAX):
        local = shards.local(tensor.detach())
        numbers = local.is_floating_point() or local.is_complex()
        if numbers and not local.is_meta and local.layout is torch.strided and local.numel():
            if not bool(torch.isfinite(local).all()):
                return False
    return True
