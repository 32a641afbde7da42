"""Keep what an Accelerator itself counts from step to step, and what a script sets of it."""

from __future__ import annotations

from typing import Any

import torch


class AcceleratorCounts:
    """How many micro-batches make a step, how many it has seen, and whether this rank has set its trigger
    (`set_trigger`) and none has asked for it yet."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def read(self) -> list[int]:
        """These counts."""
        own = self._accelerator
        return [own.gradient_accumulation_steps, own.step, int(own.flag_tensor or 0)]

    def set(self, counts: list[int]) -> None:
        """Go on from these."""
        own = self._accelerator
        own.gradient_accumulation_steps, own.step, triggered = counts
        own.flag_tensor = torch.tensor(triggered, device=own.device)
