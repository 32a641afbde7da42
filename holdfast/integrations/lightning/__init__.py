"""In-place recovery for Lightning's Trainer: `Trainer(strategy=HoldfastStrategy(), ...)`.

Theory of operation. Lightning handles an exception of `fit()` at its very outside: exception callbacks run,
loggers are marked as failed, the model is moved away. So the elastic function lies inside of `fit()`, in the
place of the fit loop's `run`: a broken generation never leaves it. Every process, also a spare, runs the
trainer's setup once, without process group and rank. The fit loop is entered in each generation.

A Holdfast step is one of these, and what Lightning does in it happens in it as a whole or is undone:

- the batches up to and with one that steps the optimizer
- a validation that follows such a batch
- the end of an epoch
- the end of the training

At the end of each, all ranks exchange what they would need to go on from there: loops, schedulers, callbacks,
metrics (`progress`). So any rank's survivor can tell a new process what the dead rank knew.

- strategy: in the place of DDPStrategy; it forms no process group, and leaves the wrapping to the session
- environment: ranks for Lightning, from the session
- fit_loop, epoch_loop: lead through generations, epochs and batches
- steps: where a Holdfast step begins and ends
- progress, trainer_state, results, plain: what a rank knows, and its exchange
- batches: train batches from a position on
- logged, exports: logger calls and checkpoint files take effect once
- cli_config: the configuration of a LightningCLI is saved
- refusals: what is not kept"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.integrations.lightning.strategy import HoldfastStrategy

__all__ = ["HoldfastStrategy"]


def __getattr__(name: str) -> Any:
    """Import Lightning only when it is asked for: some parts do without."""
    if name != "HoldfastStrategy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.integrations.lightning.strategy import HoldfastStrategy

    return HoldfastStrategy
