"""Record what a process trains on, and with which rates: by torch's global hooks, whatever the framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.frameworks import digests

if TYPE_CHECKING:
    from collections.abc import Iterator


class Steps:
    """The rows of each forward that gradients follow, and the settings of each optimizer's step.

    The rows are those of the first tensor that a module is given by its place: by its name, Trainer gives it
    to the outermost one."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._settings: list[list[dict[str, Any]]] = []
        self._depth, self._sought = 0, False
        register_module_forward_pre_hook(self._enter)
        register_module_forward_hook(self._leave)
        register_optimizer_step_post_hook(lambda optimizer, *_: self._stepped(optimizer))

    def came_to(self) -> dict[str, dict[str, str]]:
        """Both, in their order."""
        return {"rates": digests.of(self._settings), "samples": digests.of(self._rows)}

    def _enter(self, _module: Any, given: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        if self._depth == 0:
            self._sought = torch.is_grad_enabled()
        self._depth += 1
        tensor = next(_tensors(given), None) if self._sought else None
        if tensor is not None:
            self._sought = False
            self._rows.append([digest for row in tensor for digest in digests.of(row).values()])

    def _leave(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._depth -= 1

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        groups = optimizer.param_groups
        self._settings.append([{k: v for k, v in group.items() if k != "params"} for group in groups])


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, dict | list | tuple):
        for each in given.values() if isinstance(given, dict) else given:
            yield from _tensors(each)
