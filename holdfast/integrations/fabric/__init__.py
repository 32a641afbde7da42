"""Run loops that use Lightning Fabric through failures.

    from holdfast.integrations.fabric import Fabric, elastic

Theory of operation. The function under `elastic` makes its Fabric, model, optimizer and loaders, and loops
over epochs and batches as ever; it is entered again in every generation. What goes through `setup` and
`track` is tracked. `fabric.epochs(total, loader)` goes on in the epoch and at the batch of the newest
boundary (`holdfast.integrations.own_loop`).

- wrapper: Fabric's own, with the strategy below
- strategy: in the place of DDPStrategy; it forms no process group, and leaves the wrapping to the session
- loader: the training's loader, opened at any position
- refusals: what is not kept"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.integrations.fabric.wrapper import Fabric, elastic

__all__ = ["Fabric", "elastic"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.integrations.fabric import wrapper

    return getattr(wrapper, name)
