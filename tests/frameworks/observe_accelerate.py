"""Watch accelerate's Accelerator. It has no callbacks: its own methods say when they are called."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accelerate
import safetensors.torch
import torch

from tests.frameworks import digests

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.frameworks.struck import Spy

EVENTS = ("log", "gather_for_metrics", "save_state")
_seen: dict[str, Any] = {}
"""The newest accelerator of this process, and where it has saved its state."""


def install(spy: Spy) -> None:
    """Have every Accelerator say what it does."""
    for name in EVENTS:
        setattr(accelerate.Accelerator, name, _recorded(spy, name, getattr(accelerate.Accelerator, name)))


def _recorded(spy: Spy, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, *given: Any, **named: Any) -> Any:
        step = _steps(self)
        _seen["accelerator"] = self
        spy.begins(name, step)
        result = method(self, *given, **named)
        if name != "log" or self.is_main_process:
            spy.ended(name, step)
        if name == "save_state":
            _seen["folder"] = Path(given[0]).parent
        return result

    return called


def _steps(accelerator: Any) -> int:
    """How often the optimizer has stepped."""
    states = accelerator._optimizers[0].optimizer.state.values() if accelerator._optimizers else ()
    return max((int(state["step"]) for state in states), default=0)


def came_to() -> dict[str, dict[str, str]]:
    """What the newest accelerator of this process has come to."""
    accelerator = _seen.get("accelerator")
    if accelerator is None:
        return {}
    folder = _seen["folder"]
    return {
        "weights": digests.of(
            [dict(accelerator.unwrap_model(each).state_dict()) for each in accelerator._models]
        ),
        "optimizer": digests.of([each.optimizer.state_dict() for each in accelerator._optimizers]),
        "scheduler": digests.of([each.scheduler.state_dict() for each in accelerator._schedulers]),
        "progress": digests.of([each.state_dict() for each in accelerator._custom_objects]),
        "log": _logged(folder) if accelerator.is_main_process else {},
        "checkpoints": _checkpoints(folder) if accelerator.is_main_process else {},
    }


def _logged(folder: Path) -> dict[str, str]:
    """The lines that rank 0 has written. Another rank may read them before it has."""
    return digests.of([json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()])


def _checkpoints(folder: Path) -> dict[str, str]:
    """What accelerate's own checkpoints hold, read as anybody would."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("epoch-*")):
        found |= digests.of(safetensors.torch.load_file(path / "model.safetensors"), path.name)
        for each in sorted((*path.glob("*.bin"), *path.glob("custom_checkpoint_*.pkl"))):
            found |= digests.of(torch.load(each, weights_only=True), f"{path.name}/{each.name}")
    return found
