"""Keep what the trainers of all ranks knew at the end of the newest Holdfast step: the tracked progress.

It is equal on all ranks, because they exchange it: so a new process gets the dead rank's part of it from any
survivor. Between two ends it does not change, whatever Lightning does."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError
from holdfast.integrations import plain
from holdfast.integrations.changed_settings import ChangedSettings
from holdfast.integrations.lightning import trainer_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.session import Session

START = "start"
"""A place between two Holdfast steps: the next epoch, if there is one, has not begun."""

BATCH = "batch"
"""An optimizer has stepped, and what follows its batch is over."""

VALIDATE = "validate"
"""An optimizer has stepped, and a validation follows."""

EPOCH_END = "epoch end"
"""The epoch's batches are over."""

TRAIN_END = "train end"
"""All epochs are over."""

OVER = "over"
"""The fit loop is over."""

_ROW_BYTES_MAX = 4 << 20
_OUTCOME_BYTES_MAX = 16 << 20
"""What a fit has come to is a part of every later state."""
_END = b"\0"
"""Follows the calls: JSON has none."""


class FitProgress:
    """What is tracked for Lightning. `logged`: how many logger calls the steps up to now have made."""

    def __init__(self, trainer: Any, session: Session) -> None:
        self._trainer, self._session = trainer, session
        self._rows: list[bytes] = []
        self._first: dict[str, Any] | None = None
        self.place, self.logged = START, 0
        self.settings = ChangedSettings(lambda: trainer_state.settings_of(trainer), trainer_state.MOVES)

    def state_dict(self) -> dict[str, Any]:
        """Of the newest end of a step, whatever has happened since."""
        return {"rows": list(self._rows), "format": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state; `resume` makes the trainer know it."""
        if state.get("format") != 1:
            raise SessionError("Lightning: the state was written by another version of Holdfast")
        self._rows = list(state["rows"])

    def told(self) -> Iterator[tuple[str, Any]]:
        """What the training may depend on, with names: options of the trainer and its loops, and
        hyperparameters."""
        names = ("trainer", "fit_loop", "epoch_loop", "module.hparams", "datamodule.hparams")
        yield from self.settings.named(*names)

    def schedulers(self) -> dict[str, Any]:
        """The schedulers, by name: their options are the state's."""
        configs = enumerate(self._trainer.lr_scheduler_configs)
        return {f"lr_scheduler_{index}": config.scheduler for index, config in configs}

    @property
    def begun(self) -> bool:
        """Whether a Holdfast step has ended."""
        return bool(self._rows)

    def remember_first(self) -> None:
        """Keep what the trainer knows before the first step."""
        self._first = trainer_state.capture(self._trainer)

    def seal(self, place: str, calls: bytes = b"") -> bytes:
        """End a step at this place: exchange what the ranks know. All ranks call it together.

        `calls`: JSON, those that this rank has made to loggers. Returns rank 0's."""
        known = trainer_state.capture(self._trainer)
        row = {"place": place, "logged": self.logged, "trainer": known, "settings": self.settings.capture()}
        data = plain.dumps(row, "Lightning: state")
        if len(data) > _ROW_BYTES_MAX:
            raise SessionError(f"Lightning: {_largest(known, len(data))}")
        rows = plain.gather(calls + _END + data, self._session.world_size, self._session.device)
        pairs = [row.split(_END, 1) for row in rows]
        self._rows, self.place = [row for _, row in pairs], place
        return pairs[0][0]

    def outcome(self) -> dict[str, Any]:
        """What all ranks know at the end of the fit, for a process that joins the job later."""
        return plain.squeezed(b"\n".join(self._rows), _OUTCOME_BYTES_MAX)

    def take(self, told: Any) -> None:
        """The fit was over when this process joined, or the job was started again: make this rank's trainer
        know what its rank knew at the end. Raises SessionError if that was not kept."""
        if "kept" not in (told or {}):
            raise SessionError(
                "Lightning: this process joined when a fit() was over, and cannot get what the trainer knew "
                f"at its end: {(told or {}).get('refused', 'none of it was kept')}"
            )
        kept = zlib.decompress(told["kept"])
        self._rows = kept.split(b"\n") if kept else []  # a fit that had nothing to do
        self.settings.begin()
        self.resume()

    def resume(self) -> None:
        """Make this rank's trainer know what its rank knew at the newest end of a step.

        Raises SessionError if there were more ranks then, or fewer."""
        if not self._rows:
            self.place, self.logged = START, 0
            self.settings.apply([])
            if self._first is not None:
                trainer_state.apply(self._trainer, self._first)
            return
        if len(self._rows) != self._session.world_size:
            raise SessionError(
                f"Lightning: the job had {len(self._rows)} ranks and now has {self._session.world_size}. "
                "Lightning divides an epoch by the number of ranks: keep it (--nnodes N, not MIN:MAX)"
            )
        row = plain.loads(self._rows[self._session.rank], self._session.device)
        self.place, self.logged = row["place"], row["logged"]
        trainer_state.apply(self._trainer, row["trainer"])
        self.settings.apply(row.get("settings", []))


def _largest(state: dict[str, Any], size: int) -> str:
    parts = {name: len(plain.dumps(value, name)) for name, value in state.items()}
    name = max(parts, key=lambda each: parts[each])
    return (
        f"what this rank's trainer knows besides tensors of the model has {size >> 20} MiB, most of it in "
        f"{name}: it is exchanged in each step. Keep large data out of attributes and metrics, or in buffers"
    )
