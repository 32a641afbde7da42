"""Find what changes with the weights and is not tracked: it would begin anew when a rank dies."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from weakref import WeakSet

    from holdfast.state.tracked import TrackedState


def scheduler(tracked: TrackedState) -> Any:
    """A scheduler of a tracked optimizer that is not tracked itself; None: there is none."""
    optimizers, known = set(map(id, tracked.optimizers)), _with_inner(tracked.objects.values())
    for each in gc.get_objects():
        lost = issubclass(type(each), LRScheduler) and id(each) not in known
        if lost and id(getattr(each, "optimizer", None)) in optimizers:
            return each
    return None


def average(tracked: TrackedState, kept: WeakSet[AveragedModel]) -> Any:
    """An AveragedModel with a parameter in no tracked object, and that was never `kept`; None: there is none.

    Adds to `kept` those that are tracked now: they may outlive their generation."""
    found = [each for each in gc.get_objects() if issubclass(type(each), AveragedModel) and each not in kept]
    if not found:
        return None
    held = {each.data_ptr() for each in tracked.flatten().tensors}
    for each in found:
        if any(value.data_ptr() not in held for value in each.parameters()):
            return each
        kept.add(each)
    return None


def _with_inner(objects: Iterable[Any]) -> set[int]:
    """The ids of these objects, and of schedulers that they consist of (SequentialLR)."""
    pending, found = list(objects), set()
    while pending:
        each = pending.pop()
        found.add(id(each))
        if issubclass(type(each), LRScheduler):
            pending += getattr(each, "_schedulers", ())
    return found
