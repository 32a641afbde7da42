"""Look at objects of a script or of a package, which run code of their own when they are looked at."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from holdfast.errors import raised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REASON_MAX = 300
_UNREADABLE = "whether the steps change %s cannot be seen, and is not looked for: %s"
log = logging.getLogger("holdfast.sdk")


@contextlib.contextmanager
def guarded_look(unseen: str, ended: Callable[[], object] = bool) -> Iterator[None]:
    """What a look raises is told in the words of `unseen`, with the line that raised it, and ends the look
    (`ended()` is called), but no step."""
    try:
        yield
    except Exception as error:
        ended()
        log.warning(unseen, raised(error)[:_REASON_MAX])


def tell_unreadable(name: str, error: Exception, told: set[str]) -> None:
    """Tell once that a look has left out one object, because it has raised this. `told`: what was told."""
    if _UNREADABLE + name not in told:
        told.add(_UNREADABLE + name)
        log.warning(_UNREADABLE, name, raised(error)[:_REASON_MAX])
