"""Run the parts of an analysis so that one that raises is named, and the others go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import raised

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A part (a detector, say) that raised an error, and so has judged nothing. It is a bug."""

    name: str
    error: str


def failed_part(name: str, error: Exception) -> FailedPart:
    """A part that raised this error."""
    return FailedPart(name, raised(error))


class PartGuard:
    """Runs parts one after the other. `failed`: those that raised, in order."""

    def __init__(self) -> None:
        self.failed: list[FailedPart] = []

    def run(self, name: str, part: Callable[[], T], otherwise: T) -> T:
        """Return what a part gives; `otherwise` when it raises."""
        try:
            return part()
        except Exception as error:
            self.failed.append(failed_part(name, error))
            return otherwise
