"""Provide the SDK that training scripts import, and the code that ranks share with their agents.

A public name loads with its first use, and torch only then: the launcher and the agents import this package
without torch."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.coordinates import Coordinates
    from holdfast.errors import SessionError
    from holdfast.reentry.checkpoint_requests import CheckpointHandle
    from holdfast.session import Session

from holdfast.version import __version__

__all__ = ["CheckpointHandle", "Coordinates", "Session", "SessionError", "__version__"]

_HOMES = {
    "CheckpointHandle": "holdfast.reentry.checkpoint_requests",
    "Coordinates": "holdfast.coordinates",
    "Session": "holdfast.session",
    "SessionError": "holdfast.errors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"holdfast.{name} needs PyTorch, which {sys.executable} lacks: pip install 'holdfast[torch]', "
            "or your own build of torch",
            name="torch",
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
