"""Hold what Trainer knows of its progress, as it was when the newest step's body ended.

It is plain data and equal on all ranks: what differs by rank (the sum of losses since the last log) is there
for every rank. It changes only where a step ends, so a rank that is broken off in the middle of an evaluation
still has it."""

from __future__ import annotations

import json
import math
from typing import Any

from holdfast.errors import SessionError

STATE = (
    *("epoch", "global_step", "num_input_tokens_seen", "total_flos"),
    *("best_metric", "best_global_step", "best_model_checkpoint"),
)
"""The fields of TrainerState that move with the training, besides log_history."""


class TrainerProgress:
    """The tracked object: `kept` is {} before the first step has ended."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """The progress at the newest boundary."""
        return dict(self.kept)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a progress. Trainer reads it when its loop is entered."""
        self.kept = dict(state)


class LogHistory:
    """log_history up to the last place where all ranks agreed on it, as text that is made only when it
    grows.

    Ranks measure different times, and callbacks may log what they like: rank 0's entries count."""

    def __init__(self) -> None:
        self.agreed = 0
        self._text, self._of = "[]", 0

    def text(self, entries: list[dict[str, Any]]) -> str:
        """The agreed entries, as JSON."""
        if self._of != self.agreed:
            self._text, self._of = json.dumps(entries[: self.agreed], default=float), self.agreed
        return self._text

    def load(self, text: str) -> list[dict[str, Any]]:
        """The entries of a text; they are agreed."""
        entries: list[dict[str, Any]] = json.loads(text)
        self._text, self._of, self.agreed = text, len(entries), len(entries)
        return entries


def plain(state: Any, path: str) -> Any:
    """A state as plain data, with tuples as lists and functions left out. Raises SessionError naming what
    cannot be kept."""
    for kind in (bool, int, float, str):
        if isinstance(state, kind):
            return kind(state)
    if state is None:
        return None
    if isinstance(state, dict):
        return {key: plain(value, f"{path}.{key}") for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [plain(value, f"{path}.{index}") for index, value in enumerate(state)]
    if callable(state):
        return None
    if hasattr(state, "item") and math.prod(state.shape) == 1:
        return state.item()
    raise SessionError(f"{path}: a {type(state).__name__} cannot be kept: make it numbers, strings and lists")
