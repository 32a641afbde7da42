"""Keep plain attributes of the script's own callbacks and of its own Trainer (counters, lists of losses), and
what the script changes in the training of Trainer's arguments and state, and of the model's configuration.

Ranks may differ in them. So all exchange theirs at the end of a step's body: a process that takes a dead
rank's place gets those of that rank. What an event of the tail has changed is left in the ledger with it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from holdfast.clean.looks.reach import is_scripts
from holdfast.integrations import plain
from holdfast.integrations.changed_settings import Changed, ChangedSettings
from holdfast.integrations.hf import refusals
from holdfast.integrations.hf.progress import STATE
from holdfast.integrations.own_attributes import attributes_of, is_framework

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOVES = frozenset({*STATE, "log_history", "stateful_callbacks"})
"""What Trainer itself changes of its state."""
_OUTPUT = tuple(
    f"args.{each}"
    for each in (
        *("output_dir", "run_name", "project", "logging_", "log_", "report_", "trackio_", "hub_", "push_"),
        *("disable_tqdm", "save_", "dataloader_num_", "dataloader_p", "skip_memory_metrics", "_n_gpu"),
    )
)
"""How arguments begin that only say what is written, and by whom samples are fetched."""
_PLACING = "gradient_accumulation_steps"
_BYTES_MAX, _LENGTH_MAX = 16 << 10, 2000
"""A larger attribute is not kept: all of them are exchanged in each step."""


class TrainerSettings:
    """What a script changes in the training of a Trainer's own objects."""

    def __init__(self, trainer: Any) -> None:
        self._arguments = ChangedSettings(lambda: _arguments(trainer))
        self._state = ChangedSettings(lambda: [trainer.state], _MOVES)

    def begin(self) -> None:
        """A training begins."""
        self._arguments.begin()

    def told(self) -> Iterator[tuple[str, Any]]:
        """What the training may depend on, with names: arguments of the Trainer, options of the model."""
        for name, value in self._arguments.named("args", "label_smoother", "model.config"):
            if not name.startswith(_OUTPUT):
                yield name, value

    def loop_entered(self) -> None:
        """Trainer has made its state anew."""
        self._state.begin()

    def capture(self) -> Changed:
        """What has changed. Raises SessionError for what may not: the place in an epoch follows from it."""
        found = [*self._state.capture(), *self._arguments.capture()]
        if any(_PLACING in each for each in found):
            refusals.refuse(
                f"a callback that changes {_PLACING} in the training",
                "where the steps are in an epoch follows from it: train() once for each number",
            )
        return found

    def apply(self, changed: Changed) -> None:
        """Make them what they were at first, but for these changes."""
        self._state.apply(changed[:1])
        self._arguments.apply(changed[1:])


class OwnState:
    """The attributes of some objects, and the `settings` of others. `found()`: those objects, also a
    framework's.

    `rows`: those of all ranks when the newest step had ended; []: none has."""

    def __init__(self, found: Callable[[], list[Any]], settings: TrainerSettings) -> None:
        self._found, self.settings = found, settings
        self._first: str | None = None
        self.rows: list[str] = []

    def owners(self) -> list[Any]:
        """The script's own ones among the objects."""
        return [each for each in self._found() if not is_framework(type(each))]

    def is_kept(self, owner: Any, _name: str, value: Any) -> bool:
        """Whether this attribute is kept. Those of other objects (modules, data sets) are not."""
        return any(owner is each for each in self._found()) and keeps(value)

    def says(self) -> bool:
        """Whether there is anything to keep."""
        return bool(self.owners()) or any(self.settings.capture())

    def capture(self) -> str:
        """The attributes and settings as they are."""
        own = [plain.captured(_kept(each), dict(attributes_of(each))) for each in self.owners()]
        return plain.dumps([*own, *self.settings.capture()], "attributes").decode()

    def apply(self, text: str) -> None:
        """Make the attributes and settings what they were."""
        owners, kept = self.owners(), plain.loads(text.encode())
        self.settings.apply(kept[len(owners) :])
        for owner, values in zip(owners, kept, strict=False):
            plain.put_back(owner, values, _kept(owner))

    def of_ranks(self, session: Any) -> list[str]:
        """Those of all ranks, which call it together."""
        return [
            row.decode() for row in plain.gather(self.capture().encode(), session.world_size, session.device)
        ]

    def entered(self, rank: int) -> None:
        """The training begins in this process, or goes on: make the attributes those of the newest step."""
        if self.rows:
            self.apply(self.rows[rank])
        elif self._first is None:
            self._first = self.capture()
        else:
            self.apply(self._first)

    def begin(self) -> None:
        """Another training begins."""
        self._first = None
        self.settings.begin()


def called_by(trainer: Any) -> list[Any]:
    """The script's own objects that Trainer calls: for the loss, and for metrics."""
    given = trainer.compute_loss_func, trainer.compute_metrics, trainer.preprocess_logits_for_metrics
    every = {id(own): own for own in (getattr(each, "__self__", each) for each in given)}
    for other in (trainer, *trainer.callback_handler.callbacks):
        every.pop(id(other), None)
    own = (each for each in every.values() if is_scripts(type(each).__module__) and hasattr(each, "__dict__"))
    return [each for each in own if not isinstance(each, torch.nn.Module)]


def _arguments(trainer: Any) -> list[Any]:
    return [trainer.args, trainer.label_smoother, getattr(trainer.model, "config", None)]


def keeps(value: Any) -> bool:
    """Whether an attribute of this value is kept."""
    if isinstance(value, list | tuple | dict | set | deque | str | bytes) and len(value) > _LENGTH_MAX:
        return False
    return plain.is_plain(value) and len(plain.dumps(value, "attribute")) <= _BYTES_MAX


def _kept(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes_of(owner) if keeps(value)}
