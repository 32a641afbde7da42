"""Define Session, the facade that a training script uses. Nothing inside of this package imports it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from holdfast import coordinates, ddp
from holdfast.agreement import generators
from holdfast.data import loader, stateful
from holdfast.data.sampler import Sampler
from holdfast.data.taking import Batch
from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.reentry import elastic, joining, misuse, sessions, stepping
from holdfast.reentry.runtime import Runtime
from holdfast.state.claims import Claim
from holdfast.telemetry import numeric_anomalies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import torch

    from holdfast.coordinates import Coordinates
    from holdfast.reentry.checkpoint_requests import CheckpointHandle

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """Connects this rank to its agent and makes its training survive failures.

    Without an agent in the environment the same script trains alone, or under torchrun. `seed`: every step
    begins with torch, random and numpy seeded from (seed, step, rank), so that its randomness survives the
    loss of a rank (the ranks of one tensor-parallel group draw alike); None leaves them alone: then all
    ranks' generator states go into each snapshot. Who takes a lost rank's place has its random numbers again
    where all go back to a snapshot; where it goes on with another rank's newer state, they are lost, and the
    incident says so.
    `backend`: of torch.distributed; by default nccl beside a GPU, else gloo. `data_change`: whether a state
    that was trained with another number of samples, global batch or seed of the data is refused, or training
    goes on by samples consumed ("continue"). Raises SessionError."""

    def __init__(
        self, *, seed: int | None = 0, backend: str | None = None, data_change: str = "refuse"
    ) -> None:
        environment = Environment.read(os.environ)
        self._runtime = Runtime(environment, seed=seed, backend=backend, data_change=data_change)
        self._state = self._runtime.state
        sessions.begin(self._runtime)

    @property
    def runtime(self) -> Runtime:
        """What it is made of, for tests and diagnosis: no promise is made about it."""
        return self._runtime

    # ------------------------------------------------------------------ what a script uses

    @property
    def rank(self) -> int:
        """This process's rank in the current generation. Raises SessionError before it has one."""
        self._state.check_placed("rank")
        return self._state.rank

    @property
    def world_size(self) -> int:
        """How many ranks the current generation has. Raises SessionError before there is one."""
        self._state.check_placed("world_size")
        return self._state.world_size

    @property
    def layout(self) -> Coordinates:
        """Where it stands in the job's layout in the current generation, and the sizes of that. Raises
        SessionError before it has a place."""
        return self._state.layout

    def mesh(self) -> DeviceMesh:
        """A device mesh of the job's layout: dimensions dp, pp, cp and tp. All ranks make it together, in
        the elastic function, anew in each generation."""
        sizes, names = self.layout.sizes, coordinates.AXES
        return init_device_mesh(self.device.type, sizes, mesh_dim_names=names)

    @property
    def step(self) -> int:
        """The number of completed steps, which is the number of the step that runs or comes next. Each
        elastic function counts its own, from 0."""
        return self._state.step

    @property
    def data_step(self) -> int:
        """Which batch of the data this step is to consume: its own number, unless batches before it are left
        out by policy. `sample_indices` goes by it."""
        return self._state.data_step

    @property
    def generation(self) -> int:
        """The number of the current set of process groups; 0 when training alone."""
        return self._state.generation

    @property
    def device(self) -> torch.device:
        """The device this rank computes on."""
        return self._state.device

    def track(
        self,
        *unnamed: Any,
        per_rank: bool = False,
        shard: str = "",
        from_rank_0: bool = False,
        **objects: Any,
    ) -> None:
        """Keep these objects' state through failures: anything with state_dict and load_state_dict, and
        torch.Generator. Raises SessionError.

        All ranks are to hold the same (or parts of DTensors, or a stage each with --pipeline-parallel): that
        is proven, at the start and while training. `per_rank`: each rank has its own, which comes back from
        its own snapshot. `shard`: ranks that give the same name hold the same. `from_rank_0`: ranks may
        differ at the start; rank 0's state is given to all.

        Call it before the elastic function is entered; or, for what is tied to a process group (FSDP2, tensor
        parallel), track everything in it, before its first step: then what is tracked is made anew in each
        generation, and the state comes with the first call of `steps`, or of `restore`. Between two elastic
        functions it adds to what is tracked, or takes the place of what had the same name."""
        misuse.check_named(unnamed)
        if self._state.entry.inside and not (self._state.entry.tracks_inside and self._state.entry.pending):
            raise SessionError(
                "track: call it before the function under @session.elastic is entered; or, when nothing is "
                "tracked by then, in it before the first step and before restore()"
            )
        claim = Claim.of(per_rank, shard, from_rank_0)
        with joining.looking():
            for name, thing in objects.items():
                if not per_rank:
                    stateful.refuse(name, thing)
                self._state.tracked.add(name, thing, claim)

    @property
    def catching_up(self) -> bool:
        """Whether this process joined the job later, and runs what the script has between elastic functions
        that were over by then: what it does here, other ranks have done before."""
        return self._state.functions.behind

    def restore(self) -> int:
        """Put the state of this generation's first step into what is tracked, if that has not been done yet;
        the number of completed steps. All ranks call it together. `steps` does it by itself: call it when the
        state is needed before the first step."""
        stepping.restore(self._runtime)
        return self._state.completed

    def elastic(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorator: the function is entered anew for every generation; its last result is returned when all
        ranks have finished it and its final state is safe. Exceptions of the function itself are raised as
        they are.

        A script may have several, and call one several times, each counting its own steps. A process that
        joins the job later returns from those that are over with what they returned: plain data, equal on
        all ranks, or it is refused there. What stands behind a function runs at least once."""
        return elastic.wrap(self._runtime, function)

    def after_step(self, callback: Callable[[int], object]) -> None:
        """Call `callback(step)` whenever a step is complete, on every rank that has completed it: an
        evaluation, "save the best", early stopping. It also runs when the ranks have to form anew behind the
        step, and once more when a process died meanwhile, or the step is run again: so it must not change
        what is tracked. Raises SessionError in the elastic function, or on what cannot be called."""
        self._runtime.after_step.add(callback)

    def steps(
        self,
        total: int,
        *,
        seed: int | str | None = "session",
        tail: Literal["required", "skippable"] = "required",
    ) -> Iterator[int]:
        """Yield the steps that are left of `total`. A step is complete when its body has ended: when the next
        one is asked for; one left by `break` is, too, if its optimizer has stepped, and else comes again.

        `tail`: what the body does behind its last optimizer's step. "required": a step that breaks there is
        run again, which may cost up to --snapshot-every steps. "skippable": it may be cut where everything
        that is tracked has moved as in every whole step; then a death costs no step. Raises SessionError."""
        if type(total) is not int or total < 0:
            raise SessionError(f"steps: total must be an integer of 0 or more, not {total!r:.80}")
        if tail not in ("required", "skippable"):
            raise SessionError(f'steps: tail must be "required" or "skippable", not {tail!r:.80}')
        if seed is not None and seed != "session" and type(seed) is not int:
            raise SessionError(f'steps: seed must be "session", an integer or None, not {seed!r:.80}')
        state, runtime = self._state, self._runtime
        state.guard.skippable = tail == "skippable"
        misuse.check_inside(state, "steps")
        misuse.check_kept(state)
        chosen = seed if seed is None or isinstance(seed, int) else state.seed
        self.restore()
        generators.tell_lost(state, runtime.generators, chosen)
        stepping.after_break(runtime)
        state.entry.last_step = state.completed - state.step + total
        try:
            while state.step < total:
                stepping.begin(runtime, chosen)
                yield state.step
                stepping.complete(runtime)
        except GeneratorExit:  # left within a step, by a break of the loop or of a collective
            state.progress.mark("none")
            raise
        finally:
            state.progress.mark("after")
        state.check_interrupted()

    def checkpoint(self) -> CheckpointHandle:
        """Have the state made durable, whatever the intervals say: as it is when the current step is
        complete, or now when none runs. All ranks call it in the same step. The handle tells what became of
        it: nothing is skipped silently. Raises SessionError outside of the elastic function."""
        if not self._state.entry.inside:
            raise SessionError("checkpoint: call it in the function under @session.elastic")
        self.restore()
        return self._runtime.requests.ask(now=not self._state.guard.left_half)

    def ddp(self, module: torch.nn.Module, *, weighted: bool = True, **options: Any) -> torch.nn.Module:
        """The module wrapped in DistributedDataParallel whose order of summation never changes, so that a
        disturbed run ends bit-identical to an undisturbed one. `options` are DDP's. The module itself when
        this rank trains alone.

        `weighted`: when the ranks' shares of the global batch (see `sample_indices`) are not equally large,
        gradients are weighted so that they are exactly those of the mean over the global batch. That is
        right for a loss which is the mean over the rank's own samples. With another normalisation give
        False, and have the average over the ranks come out right: see `loss_weight`."""
        misuse.check_wraps(self._state)
        if self._state.world_size == 1 or not dist.is_initialized():
            return module
        if weighted:
            self._runtime.streams.weighting.watch(module)
        wrapped = ddp.wrap(module, self.device, options)
        if wrapped is not module:
            self._state.entry.wrapped.append(weakref.ref(wrapped))
        return wrapped

    def sample_indices(
        self, n: int, global_batch: int, seed: int = 0, *, micro: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """This rank's share of the current step's samples out of range(n): int64, shuffled anew every epoch.
        Which samples a step has depends on the step alone, never on the world size; the ranks of one replica
        of the model share theirs (see `layout`). `micro`: (i, count) gives the i-th of count parts of the
        share. Each data set has a seed of its own. Raises SessionError."""
        return self._runtime.streams.give(n, global_batch, seed, micro)

    def sampler(self, n: int, global_batch: int, *, micro: int | None = None, seed: int = 0) -> Sampler:
        """A batch sampler for a DataLoader of your own: what `sample_indices` gives, of the step that runs
        and of those to come. `micro`: samples in a micro-batch, at most. Raises SessionError."""
        return Sampler(self._runtime.streams, n, global_batch, micro, seed)

    def loader(
        self, dataset: Any, global_batch: int, *, micro: int | None = None, seed: int = 0, **options: Any
    ) -> loader.Loader | stateful.StateLoader:
        """The batches of a data set: `for step, batch in zip(session.steps(n), session.loader(...))`, exact
        through failures, with workers, too. With `micro` (samples in a micro-batch, at most) each step is
        given its micro-batches, an iterator with a length. `options` are DataLoader's. An iterable data set
        must have state_dict and load_state_dict. Raises SessionError."""
        return loader.make(self._runtime.streams, dataset, Batch(global_batch, micro, seed), options)

    @property
    def loss_weight(self) -> float:
        """What the mean over this rank's samples of the current step is to be multiplied with, so that the
        average over the ranks is the mean over the global batch: 1.0 when all shares are equally large.
        `session.ddp` does that to the gradients by itself; FSDP and other wrappers do not: multiply the loss
        with it there. A loss that is a sum over the rank's samples is to be multiplied with
        world_size / global_batch instead."""
        return self._runtime.streams.weighting.weight

    def report(self, **values: Any) -> None:
        """Show numbers to the operator, once a second at most. Tensors are read later, off this thread."""
        self._runtime.reports.add(values, self._state.completed)

    def check(self, loss: Any, *, every: int = numeric_anomalies.LOOK_EVERY) -> None:
        """Have a loss that is NaN or Inf noticed; what follows is the job's policy (--on-nan). A tensor on a
        GPU is looked at every `every` steps, for the GPU is waited for then; anything else at once."""
        self._runtime.anomalies.check(loss, every)

    def fault(self, why: str, *, rollback: bool = True) -> NoReturn:
        """The numbers are wrong, by the script's own judgement: all ranks go back to an older state, or with
        `rollback` false the job stops with this reason. Raises SessionError where there is no agent."""
        self._runtime.anomalies.fault(why, rollback=rollback)

    def phase(self, name: str, *, timeout_s: float | None = None) -> AbstractContextManager[None]:
        """Declare what is done within: compile, checkpoint, evaluate or data. It may take longer than a step;
        a rank that has not left it after `timeout_s` counts as hung (by default long: see hangs in the docs).
        Raises SessionError on another name."""
        return self._state.progress.phase(name, timeout_s)

    def close(self) -> None:
        """Let go of everything. A session that is not closed ends with its process, or when the script makes
        the next one; only one at a time has an agent."""
        sessions.close(self._runtime)
