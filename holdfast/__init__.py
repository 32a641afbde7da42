"""Run in the trainer's container: the SDK that scripts import, and what ranks share with their agents.

Public names load with their first use, and torch with them: the launcher and the agents import this package
without it."""

from __future__ import annotations

import importlib
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
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
