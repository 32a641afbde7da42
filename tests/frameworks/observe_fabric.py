"""Watch Lightning Fabric. Its own methods say when they are called."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.fabric
import torch

from tests.frameworks import digests

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.frameworks.struck import Spy

EVENTS = ("log_dict", "save")
_seen: dict[str, Any] = {}
"""What the newest Fabric of this process has saved, and where."""


def install(spy: Spy) -> None:
    """Have every Fabric say what it does."""
    for name in EVENTS:
        setattr(lightning.fabric.Fabric, name, _recorded(spy, name, getattr(lightning.fabric.Fabric, name)))


def _recorded(spy: Spy, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, *given: Any, **named: Any) -> Any:
        if name == "save":
            _seen.update(folder=Path(given[0]).parent, first=self.is_global_zero, state=given[1])
            _seen["precision"] = self._precision
        step = named["step"] if "step" in named else given[1]
        if name == "save":
            step = step["progress"]["steps"]
        spy.begins(name, step)
        result = method(self, *given, **named)
        spy.ended(name, step)
        return result

    return called


def came_to() -> dict[str, dict[str, str]]:
    """What the newest Fabric of this process has come to."""
    if not _seen:
        return {}
    state, folder = _seen["state"], _seen["folder"]
    return {
        "weights": digests.of(dict(state["model"].state_dict())),
        "optimizer": digests.of(state["optimizer"].optimizer.state_dict()),
        "scheduler": digests.of(state["schedule"]),
        "scaler": digests.of(_seen["precision"].state_dict()),
        "progress": digests.of(state["progress"]),
        "average": digests.of(dict(state["average"].state_dict())) if "average" in state else {},
        "log": _logged(folder) if _seen["first"] else {},
        "checkpoints": _checkpoints(folder) if _seen["first"] else {},
    }


def _logged(folder: Path) -> dict[str, str]:
    """The lines that rank 0 has written. Another rank may read them before it has."""
    return digests.of([json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()])


def _checkpoints(folder: Path) -> dict[str, str]:
    """What Fabric's own checkpoints hold, read as anybody would."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("epoch-*.ckpt")):
        found |= digests.of(torch.load(path, weights_only=True), path.name)
    return found
