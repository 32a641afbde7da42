"""Define one simulated rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import NO_STEP, Failure, MemberPhase

if TYPE_CHECKING:
    from controlplane.core.records.effects import Launch


class Rank:
    """One rank process. `held` is its clean step, `copied` the step of its newest snapshot, made in
    generation `copied_by`; NO_STEP: none."""

    __slots__ = (
        "copied", "copied_by", "failure", "generation", "held", "name", "phase", "rank", "shard", "step",
        "store",
    )  # fmt: skip

    def __init__(self, order: Launch, shard: str) -> None:
        self.name, self.rank = order.member, order.rank
        self.store = f"{order.node}:1"
        self.phase = MemberPhase.STARTING
        self.generation = 0
        self.step = self.held = self.copied = NO_STEP
        self.copied_by = 0
        self.shard = shard
        self.failure: Failure | None = None
