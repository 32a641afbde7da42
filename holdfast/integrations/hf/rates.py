"""Keep what each group of an optimizer is set to, where Trainer makes its scheduler anew."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.integrations.hf.progress import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def rates(optimizer: Any) -> list[float]:
    """The learning rate of each group of an optimizer."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def set_rates(optimizer: Any, values: Iterable[float]) -> None:
    """Give each group of an optimizer its learning rate."""
    for group, value in zip(optimizer.param_groups, values, strict=True):
        if hasattr(group["lr"], "fill_"):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


@contextmanager
def settings_stay(optimizer: Any, *, goes_on: bool) -> Iterator[None]:
    """Within, a scheduler may be made, which begins its cycle: OneCycleLR sets momentum or betas then. In a
    training that goes on, the groups have afterwards what they had, but for the rate."""
    before = [{key: value for key, value in each.items() if key != "lr"} for each in optimizer.param_groups]
    yield
    for group, settings in zip(optimizer.param_groups, before, strict=True):
        group.update(settings if goes_on else {})


def schedule(trainer: Any) -> dict[str, Any]:
    """What the scheduler of a training has come to; {} if there is none. Raises SessionError naming what
    cannot be kept."""
    if trainer.lr_scheduler is None:
        return {}
    state = plain(trainer.lr_scheduler.state_dict(), "lr_scheduler")
    return {"state": state, "rates": rates(trainer.optimizer)}


def take_schedule(trainer: Any, kept: dict[str, Any]) -> None:
    """Have the Trainer have the scheduler of a training that it did not take part in."""
    if not kept:
        return
    if trainer.lr_scheduler is None:
        trainer.create_scheduler(trainer.state.max_steps, trainer.optimizer)
    trainer.lr_scheduler.load_state_dict(copy.deepcopy(kept["state"]))
    set_rates(trainer.optimizer, kept["rates"])
    trainer.callback_handler.lr_scheduler = trainer.lr_scheduler  # callbacks are given it
