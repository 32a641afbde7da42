"""Know whether the script profiles by itself, and notice when it begins to.

torch has one profiler per process. A second one that begins while another records, or is in its warm-up,
spoils both, and can end the process (torch 2.13: a segmentation fault). So ours never begins beside another
one, and ends before another one begins."""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from torch._C._autograd import _profiler_enabled
from torch.autograd import profiler as backend

if TYPE_CHECKING:
    from collections.abc import Callable

_ENTRANCES = ("_prepare_profiler", "_enable_profiler")
"""The functions of torch's backend by which every profiler begins: for its warm-up, and to record."""


def found() -> str:
    """Why no profile may begin now: the script profiles by itself. "": it may."""
    if _profiler_enabled():
        return "the script profiles by itself"
    for each in gc.get_objects():
        if type(each) is backend.profile and each.entered and each.kineto_results is None:
            return "the script profiles by itself: its profiler is in its warm-up, or in another thread"
    return ""


class Entrance:
    """Calls `give_way` before any profiler begins, from `watch` to `close`."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._ours: dict[str, tuple[Any, Any]] = {}  # by name: what we have put there, what was there

    def watch(self) -> None:
        """Stand before torch's functions."""
        for name in _ENTRANCES:
            original = getattr(backend, name)
            ours = functools.partial(self._pass, original)
            self._ours[name] = ours, original
            setattr(backend, name, ours)

    def close(self) -> None:
        """Put torch's functions back, where nobody else has replaced them since."""
        for name, (ours, original) in self._ours.items():
            if getattr(backend, name) is ours:
                setattr(backend, name, original)
        self._ours.clear()

    def _pass(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._give_way()
        return original(*args, **kwargs)
