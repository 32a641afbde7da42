"""Run loops that use accelerate's Accelerator through failures.

    from holdfast.integrations.accelerate import Accelerator, elastic

Theory of operation. The function under `elastic` makes its Accelerator, model, optimizer and loaders, and
loops over epochs and batches as ever; it is entered again in every generation. What goes through `prepare`
and `register_for_checkpointing` is tracked, so its state comes back from memory, whichever objects the new
generation has made. `accelerator.epochs(total, loader)` goes on in the epoch and at the batch of the newest
boundary (`holdfast.integrations.own_loop`).

- accelerator: accelerate's own, which tracks what it prepares, and leaves the wrapping to the session
- loader: the training's loader, opened at any position
- refusals: what is not kept"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.integrations.accelerate.accelerator import Accelerator, elastic

__all__ = ["Accelerator", "elastic"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.integrations.accelerate import accelerator

    return getattr(accelerator, name)
