"""Take the place of Fabric's DDPStrategy: no launcher, no process group, the session's wrapping."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from lightning.fabric.strategies import DDPStrategy
from lightning.fabric.strategies.ddp import _DDPBackwardSyncControl
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning_utilities.core.rank_zero import rank_zero_only as utils_rank_zero_only
from torch.nn.parallel import DistributedDataParallel

from holdfast.integrations import compiled
from holdfast.integrations.lightning.environment import HoldfastEnvironment

if TYPE_CHECKING:
    import torch

    from holdfast.integrations.own_loop import OwnLoop


class LoopStrategy(DDPStrategy):
    """DDP in one generation of a script's own loop. `options` are those of DistributedDataParallel."""

    _ddp_kwargs: dict[str, Any]
    global_rank: int

    def __init__(self, loop: OwnLoop, **options: Any) -> None:
        self._loop, self._models = loop, 0
        self.called: Any = None  # what the module to be set up is called by: itself, or compiled
        super().__init__(cluster_environment=HoldfastEnvironment(loop.session), **options)
        self._backward_sync_control = _NoSync()

    def _configure_launcher(self) -> None:
        """The processes are there already."""

    def _setup_distributed(self) -> None:
        """Form nothing: the session has formed a group."""
        for each in (rank_zero_only, utils_rank_zero_only):
            setattr(each, "rank", self.global_rank)  # noqa: B010

    @property
    def root_device(self) -> torch.device:
        """The device of this process."""
        return self._loop.session.device

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The division of an epoch among ranks."""
        return {"num_replicas": self._loop.session.world_size, "rank": self._loop.session.rank}

    def setup_module(self, module: Any) -> Any:
        """Track the module, and wrap it for this generation's group."""
        name = f"model_{self._models}" if self._models else "model"
        self._models += 1
        self._loop.session.track(**{name: module}, from_rank_0=True)
        called = self.called if compiled.bare(self.called) is module else module
        return self._loop.session.ddp(called, weighted=False, **self._ddp_kwargs)

    def optimizer_step(self, optimizer: Any, **options: Any) -> Any:
        """Step the optimizer: the step of the loop ends with this body."""
        self._loop.moved()
        return super().optimizer_step(optimizer, **options)


class _NoSync(_DDPBackwardSyncControl):
    """Fabric's, which also knows the bare module of a rank that trains alone."""

    def no_backward_sync(self, module: Any, enabled: bool) -> AbstractContextManager[Any]:
        """A context in which gradients are not synchronised."""
        if not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return super().no_backward_sync(module, enabled)  # type: ignore[no-any-return]
