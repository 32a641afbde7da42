"""Define what is being asked of a job's nodes: where their ranks stand, and which peers they reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import Standing

if TYPE_CHECKING:
    from controlplane.core.records.model import PeerSight


@dataclass(slots=True)
class Look:
    """The look at a generation in which somebody is past its deadline."""

    generation: int
    begin_at: float
    round: int = 0  # of the orders that are out; 0: none
    until: float = 0.0  # answers are waited for
    answers: dict[str, tuple[Standing, ...]] = field(default_factory=dict)  # by node
    judged: tuple[str, ...] = ()  # who was past its deadline when it was last found that one waits on


@dataclass(slots=True)
class Looks:
    """One round of dialling: who was asked, and what was said."""

    round: int
    generation: int
    asked: tuple[str, ...]
    said: dict[str, dict[str, PeerSight]] = field(default_factory=dict)
    judged: bool = False

    @property
    def complete(self) -> bool:
        """Everybody who was asked has answered."""
        return all(node in self.said for node in self.asked)
