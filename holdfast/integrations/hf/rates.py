"""Keep what each group of an optimizer is set to, where Trainer makes its scheduler anew."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
