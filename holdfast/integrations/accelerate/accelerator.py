"""Define Accelerator: accelerate's own, which tracks what it prepares; and the function it is made in."""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any

import accelerate
from accelerate.data_loader import DataLoaderShard

from holdfast.integrations import accelerate_state, compiled, led_loader, versions
from holdfast.integrations.accelerate import refusals, trackers
from holdfast.integrations.accelerate.counts import AcceleratorCounts
from holdfast.integrations.accelerate.loader import LedShard
from holdfast.integrations.entry import LoopEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.integrations.own_loop import OwnLoop
    from holdfast.session import Session

_WHAT = "Accelerator under Holdfast"


def _connect(cpu: bool) -> Session | None:
    session = accelerate_state.connect(cpu=cpu)
    if session is not None:
        versions.check("accelerate")
        accelerate_state.refill(session, cpu=cpu)
    return session


_entry = LoopEntry(
    *(_connect, _WHAT, "give it to accelerator.prepare(...)"),
    keep="give it to accelerator.register_for_checkpointing(...)",
)
elastic = _entry.elastic
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
"""The models that accelerate has prepared in place: one that the script keeps through generations."""


class Accelerator(accelerate.Accelerator):
    """accelerate.Accelerator, for a loop that survives the death of ranks in place.

    Make it in the function under `elastic`. The arguments are accelerate's; without an agent it is exactly
    accelerate's. Raises SessionError, naming the setting, for what cannot be kept."""

    _loop: OwnLoop | None = None
    dataloader_config: Any
    log_with: Any
    trackers: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not accelerate_state.agent_looks_after():
            super().__init__(*args, **kwargs)
            return
        loop = _entry.loop
        named = inspect.signature(accelerate.Accelerator).bind(*args, **kwargs).arguments
        refusals.check_arguments(named)
        super().__init__(*args, **kwargs)
        refusals.check_accelerator(self, bool(named.get("cpu")))
        self.dataloader_config = _seeded(self.dataloader_config)
        self._kept: list[Any] = []
        self._wrapped: list[Any] = []
        self._loop, self._names = loop, {"model": 0, "optimizer": 0, "scheduler": 0, "registered": 0}
        loop.counts = AcceleratorCounts(self)
        for name in ("gradient_accumulation_steps", "mixed_precision", "split_batches", "even_batches"):
            loop.told[f"Accelerator.{name}"] = getattr(self, name)
        loop.session.track(loop=loop.progress, from_rank_0=True)

    @property
    def session(self) -> Session | None:
        """The session; None without an agent."""
        return self._loop.session if self._loop is not None else None

    def epochs(self, total: int, loader: Any) -> Iterable[int]:
        """The epochs of the training, up to `total - 1`, to loop over in place of `range(total)`; `loader`:
        the prepared one that the training reads, once per epoch.

        In a new generation it begins in the epoch, and the loader at the batch, of the newest boundary.
        Without an agent: `range(total)`. Raises SessionError for a loader that cannot be read so."""
        if self._loop is not None:
            refusals.check_prepared(loader)
        refusal = f"{_WHAT}: epochs(..., loader): give the loader that prepare() has returned"
        return led_loader.epochs(self._loop, total, loader, LedShard, refusal)

    # ------------------------------------------------------------------ what is tracked

    def _track(self, kind: str, thing: Any, *, from_rank_0: bool = False) -> None:
        if self._loop is not None:
            number = self._names[kind]
            self._names[kind] += 1
            name = f"{kind}_{number}" if number else kind
            self._loop.session.track(**{name: thing}, from_rank_0=from_rank_0)

    def prepare_model(self, model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
        """accelerate's, with the session's wrapping. A model for evaluation only is not tracked."""
        if self._loop is None:
            return super().prepare_model(model, device_placement, evaluation_mode)
        inner = compiled.bare(model)
        if model in _prepared:
            self._models.append(model)
            model = accelerate_state.compiled_again(self, model)
        else:
            _prepared.add(model)
            model = super().prepare_model(model, device_placement, evaluation_mode=True)
            accelerate_state.unmark(model)
        if evaluation_mode:
            return model
        self._track("model", inner, from_rank_0=True)
        wrapped = accelerate_state.wrapped(self._loop.session, self, model)
        self._wrapped.append(wrapped)
        return wrapped

    def unwrap_model(
        self, model: Any, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> Any:
        """accelerate's, which looks for a compiled model around the wrapper. Here it is in it."""
        found = super().unwrap_model(model, keep_fp32_wrapper, keep_torch_compile)
        return found if keep_torch_compile else compiled.bare(found)

    def prepare_optimizer(self, optimizer: Any, device_placement: Any = None) -> Any:
        """accelerate's; the optimizer is tracked."""
        if self._loop is not None and self.scaler is not None:  # the script may have given it another one
            self._loop.session.track(scaler=self.scaler)
        known = len(self._optimizers)
        prepared = super().prepare_optimizer(optimizer, device_placement)
        if self._loop is not None and len(self._optimizers) > known:
            self._track("optimizer", prepared.optimizer)
            prepared.step = self._noticed(prepared.step)
        return prepared

    def _noticed(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A step of a prepared optimizer, noticed where accelerate does not leave it out to accumulate."""

        @functools.wraps(step)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            if self.sync_gradients and self._loop is not None:
                refusals.check_synchronised(self._wrapped)
                self._loop.moved()
            return step(*args, **kwargs)

        return stepped

    def prepare_scheduler(self, scheduler: Any) -> Any:
        """accelerate's; the scheduler is tracked."""
        known = len(self._schedulers)
        prepared = super().prepare_scheduler(scheduler)
        if len(self._schedulers) > known:
            self._track("scheduler", prepared.scheduler)
        return prepared

    def prepare_data_loader(
        self, data_loader: Any, device_placement: Any = None, slice_fn_for_dispatch: Any = None
    ) -> Any:
        """accelerate's; it may become the training's."""
        prepared = super().prepare_data_loader(data_loader, device_placement, slice_fn_for_dispatch)
        if self._loop is None or type(prepared) is not DataLoaderShard:
            return prepared
        self._dataloaders.pop()
        led = LedShard.instead_of(prepared, self._loop)
        self._dataloaders.append(led)
        return led

    def register_for_checkpointing(self, *objects: Any) -> None:
        """accelerate's; the objects are tracked: their states must be plain data or tensors."""
        super().register_for_checkpointing(*objects)
        for each in objects:
            self._track("registered", each)

    # ------------------------------------------------------------------ the loss

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """accelerate's; the loss is shown to the operator."""
        if self._loop is not None:
            self._loop.loss.add(loss, self.gradient_accumulation_steps)
        super().backward(loss, **kwargs)

    # ------------------------------------------------------------------ loggers and files

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """accelerate's. tensorboard, wandb and mlflow have one run per job; others are made once per process:
        they outlive generations."""
        if self._loop is None:
            super().init_trackers(project_name, config, init_kwargs)
            return
        every, kept = self.log_with, [str(each) for each in self.log_with if trackers.is_kept(each)]
        begun = self._loop.kept  # the trackers that outlive generations, by the project's name
        if project_name not in begun:
            self.log_with = [each for each in every if not trackers.is_kept(each)]
            trackers.tell_of(self.log_with)
            super().init_trackers(project_name, config, init_kwargs)
            self.log_with, begun[project_name] = every, self.trackers
        options = init_kwargs or {}
        runs = [
            trackers.run_of(name, project_name, self.logging_dir, config, options.get(name, {}))
            for name in kept
        ]
        if runs:
            self._loop.keep_runs(runs)
        self._kept = [trackers.KeptTracker(name, self._loop, index) for index, name in enumerate(kept)]
        self.trackers = [*begun[project_name], *self._kept]

    def log(
        self, values: dict[str, Any], step: int | None = None, log_kwargs: dict[str, Any] | None = None
    ) -> None:
        """accelerate's; a step that runs again logs nothing twice."""
        if self._loop is None:
            super().log(values, step, log_kwargs)
            return
        every, others = self.trackers, [each for each in self.trackers if each not in self._kept]
        self.trackers = [*self._kept, *(others if others and self._loop.logs() else ())]
        if self.trackers:
            super().log(values, step, log_kwargs)
        self.trackers = every

    def end_training(self) -> None:
        """accelerate's, but for the process group, which is the session's."""
        if self._loop is None:
            super().end_training()
            return
        for tracker in self.trackers:
            tracker.finish()

    def save_state(self, *args: Any, **kwargs: Any) -> Any:
        """accelerate's: an export. A job goes on from its own checkpoints (`--storage`)."""
        if self._loop is None:
            return super().save_state(*args, **kwargs)
        self._loop.seal_logs()
        with self._loop.session.phase("checkpoint"):
            return super().save_state(*args, **kwargs)

    def load_state(self, *args: Any, **kwargs: Any) -> Any:
        """accelerate's; refused under an agent."""
        if self._loop is not None:
            refusals.refuse(
                "load_state",
                "a job goes on from its own checkpoints (--storage). To begin with other weights, load them "
                "into the model before prepare()",
            )
        return super().load_state(*args, **kwargs)

    def join_uneven_inputs(self, *args: Any, **kwargs: Any) -> Any:
        """accelerate's; refused under an agent."""
        if self._loop is not None:
            refusals.refuse("join_uneven_inputs", "ranks would train in different numbers of steps")
        return super().join_uneven_inputs(*args, **kwargs)


def _seeded(config: Any) -> Any:
    """The same, with an order of samples that follows from seed and epoch."""
    config = copy.copy(config)
    config.use_seedable_sampler = True
    return config
