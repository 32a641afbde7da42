"""Define Fabric: Lightning's own, which tracks what it sets up; and the function it is made in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import lightning.fabric

from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.integrations import compiled, led_loader, versions
from holdfast.integrations.entry import LoopEntry
from holdfast.integrations.fabric import refusals
from holdfast.integrations.fabric.loader import LedFabricLoader
from holdfast.integrations.fabric.strategy import LoopStrategy
from holdfast.integrations.lightning.loggers import run_of
from holdfast.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.integrations.own_loop import OwnLoop

_WHAT = "Fabric under Holdfast"
_connected: list[Session] = []
"""The session of this process; empty before the first `elastic`, and without an agent."""


def _has_agent() -> bool:
    return bool(Environment.read(os.environ).agent_socket)


def _connect(cpu: bool) -> Session | None:
    if not _has_agent():
        return None
    if not _connected:
        versions.check("lightning")
        _connected.append(Session(backend="gloo" if cpu else None))
    return _connected[0]


_entry = LoopEntry(
    *(_connect, _WHAT, "give it to fabric.setup(..., scheduler=) or to fabric.track(schedule=...)"),
    keep="give it to fabric.track(name=...)",
)
elastic = _entry.elastic


class Fabric(lightning.fabric.Fabric):
    """lightning.fabric.Fabric, for a loop that survives the death of ranks in place.

    Make it in the function under `elastic`. The arguments are Lightning's; `ddp`: options of
    DistributedDataParallel. Without an agent it is exactly Lightning's. Raises SessionError, naming the
    setting, for what cannot be kept."""

    _loop: OwnLoop | None = None
    _precision: Any
    _loggers: list[Any]
    device: Any

    def __init__(
        self, *, strategy: Any = "auto", ddp: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        options = dict(ddp or {})
        if not _has_agent():
            if options:
                strategy = lightning.fabric.strategies.DDPStrategy(**options)
            super().__init__(strategy=strategy, **settings)
            return
        loop = _entry.loop
        refusals.check_strategy(strategy)
        if strategy == "ddp_find_unused_parameters_true":
            options["find_unused_parameters"] = True
        super().__init__(strategy=LoopStrategy(loop, **options), **settings)
        if self.strategy.accelerator.name() == "cpu" and loop.session.device.type != "cpu":
            raise SessionError("Fabric(accelerator='cpu') under Holdfast: write @elastic(cpu=True)")
        self._loop, self._optimizers = loop, 0
        loop.session.track(loop=loop.progress, from_rank_0=True)
        loop.told["Fabric.precision"] = self._precision.precision
        scaler = getattr(self._precision, "scaler", None)
        if scaler is not None:
            loop.session.track(scaler=scaler)
        self._others, self._kept = [], []
        for logger in self._loggers:
            run = run_of(logger)
            if run is None:
                self._others.append(logger)
            else:
                self._kept.append((logger, run))
        loop.watched = list(self._callbacks)
        if self._kept:
            loop.keep_runs([run for _, run in self._kept])

    @property
    def session(self) -> Session | None:
        """The session; None without an agent."""
        return self._loop.session if self._loop is not None else None

    def epochs(self, total: int, loader: Any) -> Iterable[int]:
        """The epochs of the training, up to `total - 1`, to loop over in place of `range(total)`; `loader`:
        the one that the training reads, once per epoch, as `setup_dataloaders` has returned it.

        In a new generation it begins in the epoch, and the loader at the batch, of the newest boundary.
        Without an agent: `range(total)`. Raises SessionError for a loader that cannot be read so."""
        refusal = f"{_WHAT}: epochs(..., loader): give the loader of setup_dataloaders()"
        return led_loader.epochs(self._loop, total, loader, LedFabricLoader, refusal)

    def track(self, **objects: Any) -> None:
        """Keep these objects through failures, too: schedulers, counters with `state_dict` and
        `load_state_dict`. Without an agent nothing happens."""
        if self._loop is not None:
            self._loop.session.track(**objects)

    # ------------------------------------------------------------------ what is tracked

    def setup(self, module: Any, *optimizers: Any, scheduler: Any = None, **options: Any) -> Any:
        """Lightning's; module, optimizers and scheduler are tracked."""
        found = super().setup(self._bare(module), *optimizers, scheduler=scheduler, **options)
        self._keep(optimizers)
        if scheduler is not None:
            self.track(scheduler=scheduler)
        return found

    def setup_module(self, module: Any, **options: Any) -> Any:
        """Lightning's; the module is tracked."""
        return super().setup_module(self._bare(module), **options)

    def _bare(self, module: Any) -> Any:
        """The module in a compiled one. The strategy wraps the compiled one, where Fabric compiles a wrapper:
        that is another one in each generation."""
        if self._loop is None:
            return module
        self.strategy.called = module
        return compiled.bare(module)

    def setup_optimizers(self, *optimizers: Any) -> Any:
        """Lightning's; the optimizers are tracked."""
        found = super().setup_optimizers(*optimizers)
        self._keep(optimizers)
        return found

    def _keep(self, optimizers: Iterable[Any]) -> None:
        for optimizer in optimizers if self._loop is not None else ():
            refusals.check_optimizer(optimizer)
            name = f"optimizer_{self._optimizers}" if self._optimizers else "optimizer"
            self._optimizers += 1
            self.track(**{name: optimizer})

    def _setup_dataloader(self, dataloader: Any, *given: Any, **named: Any) -> Any:
        found = super()._setup_dataloader(dataloader, *given, **named)
        return found if self._loop is None else LedFabricLoader.instead_of(found, self._loop)

    # ------------------------------------------------------------------ the loss

    def backward(self, tensor: Any, *given: Any, **named: Any) -> None:
        """Lightning's; the loss is shown to the operator."""
        if self._loop is not None:
            self._loop.loss.add(tensor)
        super().backward(tensor, *given, **named)

    # ------------------------------------------------------------------ loggers and files

    def log_dict(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Lightning's; a step that runs again logs nothing twice."""
        if self._loop is None:
            super().log_dict(metrics, step)
            return
        if self.is_global_zero:
            for index in range(len(self._kept)):
                self._loop.log(index, step, metrics)
        if self._others and self._loop.logs():
            every, self._loggers = self._loggers, self._others
            super().log_dict(metrics, step)
            self._loggers = every

    def save(self, *given: Any, **named: Any) -> None:
        """Lightning's: an export. A job goes on from its own checkpoints (`--storage`)."""
        if self._loop is None:
            super().save(*given, **named)
            return
        self._loop.seal_logs()
        with self._loop.session.phase("checkpoint"):
            super().save(*given, **named)

    def load(self, path: Any, state: Any = None, *given: Any, **named: Any) -> Any:
        """Lightning's; refused under an agent where it changes the state."""
        if self._loop is not None and state is not None:
            refusals.refuse(
                "load(path, state)",
                "a job goes on from its own checkpoints (--storage). To begin with other weights, load them "
                "into the model before setup()",
            )
        return super().load(path, state, *given, **named)
