"""Have a process that joins a job late save nothing: the others have saved, and its model is not theirs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.session import Session


def unless_late(session: Session, save: Callable[..., Any]) -> Callable[..., Any]:
    """A framework's function that saves; while this process catches up it does nothing."""

    @functools.wraps(save)
    def saves(*given: Any, **named: Any) -> Any:
        return None if session.catching_up else save(*given, **named)

    return saves
