"""Define Session, the object through which a training script uses Holdfast.

It is a facade: every method hands its work to a component, and no module inside this package imports it."""

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
from holdfast.groups import waiting
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

        session = Session()
        session.track(model=model, optimizer=optimizer)

        @session.elastic
        def train():
            wrapped = session.ddp(model)
            for step in session.steps(1000):
                ...  # forward, backward, optimizer.step()

        train()

    Without an agent in the environment, the same script trains alone or under torchrun. Only one session of a
    process at a time has an agent: making another one closes the one before.

    - `seed`: with an integer, torch, `random` and numpy are seeded from (seed, step, rank) at the start of
      every step, so a step that runs again, even in another process, draws the same numbers. The ranks of one
      tensor-parallel group draw the same. None: Holdfast seeds nothing, and every snapshot holds the
      generator states of all ranks. A replacement then continues a lost rank's numbers if all ranks go back
      to a snapshot. If it receives another rank's newer state, those numbers are lost and the incident
      reports it.
    - `backend`: of torch.distributed; None: "nccl" if there is a GPU, else "gloo".
    - `data_change`: what happens if the state was trained with another number of samples, global batch or
      data seed than the script asks for. "refuse": SessionError. "continue": go on by the number of samples
      consumed.

    Raises SessionError if the environment is malformed, if the script has made a process group itself, or if
    another session is in its elastic function."""

    def __init__(
        self, *, seed: int | None = 0, backend: str | None = None, data_change: str = "refuse"
    ) -> None:
        environment = Environment.read(os.environ)
        self._runtime = Runtime(environment, seed=seed, backend=backend, data_change=data_change)
        self._state = self._runtime.state
        sessions.begin(self._runtime)

    @property
    def runtime(self) -> Runtime:
        """The session's components, for tests and diagnosis. Not part of the stable interface."""
        return self._runtime

    # ------------------------------------------------------------------ what a script uses

    @property
    def rank(self) -> int:
        """This process's rank in the current generation, from 0. Raises SessionError before it has a
        place."""
        self._state.check_placed("rank")
        return self._state.rank

    @property
    def world_size(self) -> int:
        """The number of ranks in the current generation. Raises SessionError before this process has a
        place."""
        self._state.check_placed("world_size")
        return self._state.world_size

    @property
    def layout(self) -> Coordinates:
        """This rank's coordinates (dp, pp, cp, tp) in the job's layout, and the size of each axis. Raises
        SessionError before this process has a place."""
        return self._state.layout

    def mesh(self) -> DeviceMesh:
        """Make a device mesh of the job's layout, with dimensions "dp", "pp", "cp" and "tp" in this order.

        All ranks call it together, inside the elastic function, and again in each generation: a mesh is bound
        to the process groups of its generation. Raises SessionError before this process has a place."""
        sizes, names = self.layout.sizes, coordinates.AXES
        return init_device_mesh(self.device.type, sizes, mesh_dim_names=names)

    @property
    def step(self) -> int:
        """The number of steps completed in this elastic function; so also the number, from 0, of the step
        that runs or comes next."""
        return self._state.step

    @property
    def data_step(self) -> int:
        """The number of the data batch that this step consumes. It equals `step` unless earlier batches were
        left out by policy (`--nan-skip-window`). `sample_indices` uses it."""
        return self._state.data_step

    @property
    def generation(self) -> int:
        """The number of the current generation (one set of process groups); 0 before the first one, or
        without an agent."""
        return self._state.generation

    @property
    def device(self) -> torch.device:
        """The device that this rank computes on: its GPU by local rank, or the CPU."""
        return self._state.device

    def track(
        self,
        *unnamed: Any,
        per_rank: bool = False,
        shard: str = "",
        from_rank_0: bool = False,
        **objects: Any,
    ) -> None:
        """Keep the state of these objects through failures, each under the name it is given here.

        An object needs `state_dict` and `load_state_dict`, or is a torch.Generator. By default all ranks must
        hold the same state, or parts of DTensors, or one stage each with --pipeline-parallel; Holdfast
        compares the ranks at the start and while training. Three arguments say otherwise for all objects of
        this call:

        - `per_rank`: each rank has its own state, which comes back from its own snapshot.
        - `shard`: ranks that give the same name hold the same state.
        - `from_rank_0`: ranks may differ at the start; all receive rank 0's state (with `shard`: that of the
          shard's first rank).

        Call it before the elastic function is entered. If the objects are tied to a process group (FSDP2,
        tensor parallel), track all of them inside the function instead, before its first step. They are then
        built again in each generation, and their state is restored by the first `steps` or by `restore`.
        Between two elastic functions, a call adds objects; a name that is given again replaces its object.

        Raises SessionError, naming the object, if its state cannot be kept or the call comes too late."""
        misuse.check_named(unnamed)
        if self._state.entry.inside and not (self._state.entry.tracks_inside and self._state.entry.pending):
            raise SessionError(
                "track: call it before the function under @session.elastic; if nothing is tracked before it, "
                "call it in the function, before the first step and before restore()"
            )
        claim = Claim.of(per_rank, shard, from_rank_0)
        with joining.looking():
            for name, thing in objects.items():
                if not per_rank:
                    stateful.refuse(name, thing)
                self._state.tracked.add(name, thing, claim)

    @property
    def catching_up(self) -> bool:
        """Whether this process joined the job late and runs the script's code between elastic functions that
        are already over. The other ranks ran that code earlier."""
        return self._state.functions.behind

    def restore(self) -> int:
        """Restore the state of this generation's first step into the tracked objects, unless that is done
        already.

        All ranks call it together. `steps` does it by itself: call it only if you need the state before the
        first step. Returns the number of steps that the job has completed, over all its elastic functions.
        Raises SessionError if ranks hold different state that must be equal."""
        stepping.restore(self._runtime)
        return self._state.completed

    def elastic(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function that Holdfast enters again in every generation.

        The function returns its last result once all ranks have finished it and its final state is safe. An
        exception of the function itself is raised unchanged.

        A script may have several elastic functions and call one several times; each call counts its own steps
        from 0. A process that joins the job late does not run calls that are over: it returns what they
        returned. So a result must be plain data (numbers, strings, bytes, None, lists, tuples, dicts) and
        equal on all ranks; any other result is refused in such a process. Code after a function runs at least
        once."""
        return elastic.wrap(self._runtime, function)

    def after_step(self, callback: Callable[[int], object]) -> None:
        """Call `callback(step)` after each complete step, on every rank that completed it: for evaluation,
        "save the best" or early stopping.

        It also runs if the ranks have to form a new generation right after the step. It runs once more for
        the same step if a process died meanwhile, or if the step runs again. So it must not change tracked
        state.

        Raises SessionError inside the elastic function, or if `callback` cannot be called."""
        self._runtime.after_step.add(callback)

    def steps(
        self,
        total: int,
        *,
        seed: int | str | None = "session",
        tail: Literal["required", "skippable"] = "required",
    ) -> Iterator[int]:
        """Yield the numbers of the steps that are left, up to `total - 1`, and restore the state before the
        first one.

        A step is complete when its body ends, that is, when the loop asks for the next one. A step left by
        `break` counts as complete if its optimizer has stepped or if it cannot be undone; otherwise it runs
        again.

        - `total`: steps of this elastic function, 0 or more.
        - `seed`: the seed of these steps, as in Session; "session": the session's own; None: leave the random
          generators to the script.
        - `tail`: how the part of the body after its last optimizer step is treated. "required": a step that
          breaks there runs again, which may cost up to --snapshot-every steps. "skippable": that part may be
          cut off; the step counts if all tracked state has changed as in every whole step, so a death there
          costs no step.

        Raises SessionError for a wrong argument, outside the elastic function, if the state does not fit, or
        if the ranks left a loop at different places."""
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
        except GeneratorExit:  # left inside a step, by a break of the loop or of a collective
            state.progress.mark("none")
            raise
        finally:
            state.progress.mark("after")
        state.check_interrupted()

    def checkpoint(self) -> CheckpointHandle:
        """Make the state durable, whatever the checkpoint intervals are: the state at the end of the current
        step, or of now between steps.

        All ranks call it in the same step. It returns a handle at once: `handle.wait()` gives the outcome,
        and `handle.reason` says why if no checkpoint was made. Raises SessionError outside the elastic
        function."""
        if not self._state.entry.inside:
            raise SessionError("checkpoint: call it in the function under @session.elastic")
        self.restore()
        return self._runtime.requests.ask(now=not self._state.guard.left_half)

    def ddp(self, module: torch.nn.Module, *, weighted: bool = True, **options: Any) -> torch.nn.Module:
        """Wrap a module in DistributedDataParallel with a fixed order of summation.

        The fixed order makes a disturbed run end bit-identical to an undisturbed one. Call it inside the
        elastic function, in each generation. `options` are those of DistributedDataParallel. Returns the
        module itself if this rank trains alone, or if no parameter needs gradients.

        `weighted`: if the ranks' shares of the global batch (see `sample_indices`) are unequal, scale each
        rank's gradients so that their average is the gradient of the mean over the global batch. This is
        right if the loss is the mean over the rank's own samples. For another normalisation give False and
        weigh the loss yourself: see `loss_weight`."""
        misuse.check_wraps(self._state)
        if self._state.world_size == 1 or not dist.is_initialized():
            return module
        if weighted:
            self._runtime.streams.weighting.watch(module)
        wrapped = ddp.wrap(module, self.device, waiting.guarded(options))
        if wrapped is not module:
            self._state.entry.wrapped.append(weakref.ref(wrapped))
        return wrapped

    def sample_indices(
        self, n: int, global_batch: int, seed: int = 0, *, micro: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """Return this rank's samples of the current step: a 1-D int64 tensor of indices in range(n), shuffled
        anew in every epoch.

            batch = data[session.sample_indices(len(data), global_batch=64)]

        The samples of a step depend only on its number, never on the world size. The ranks of one replica of
        the model get the same samples (see `layout`).

        - `n`: samples in the data set.
        - `global_batch`: samples per step, of all ranks together.
        - `seed`: names the stream of samples; give each data set its own.
        - `micro`: (i, count) returns only the i-th of `count` parts of this rank's share.

        Raises SessionError for impossible sizes, if the same samples are asked for twice in a step, or if
        they do not continue those that the state was trained with (see `data_change`)."""
        return self._runtime.streams.give(n, global_batch, seed, micro)

    def sampler(self, n: int, global_batch: int, *, micro: int | None = None, seed: int = 0) -> Sampler:
        """Make a batch sampler for your own DataLoader: `YourLoader(data,
        batch_sampler=session.sampler(len(data), 64))`.

        It yields lists of indices: the samples of `sample_indices`, for the current step and all later ones.
        Make a new iterator in each generation. `micro`: largest number of samples in a micro-batch; None: one
        batch per step. Raises SessionError for impossible sizes."""
        return Sampler(self._runtime.streams, n, global_batch, micro, seed)

    def loader(
        self, dataset: Any, global_batch: int, *, micro: int | None = None, seed: int = 0, **options: Any
    ) -> loader.Loader | stateful.StateLoader:
        """Load the batches of a data set so that no failure repeats or skips a sample, also with workers.

            for step, batch in zip(session.steps(n), session.loader(dataset, global_batch=64)):
                ...

        - `dataset`: a map data set; or an iterable one with `state_dict` and `load_state_dict`; or a function
          `(dp_rank, dp)` that makes the latter for one data-parallel replica.
        - `global_batch`: samples per step, of all ranks together.
        - `micro`: largest number of samples in a micro-batch. If given, each step gets an iterator with a
          length over its micro-batches, instead of one batch.
        - `seed`: names the stream of samples; give each data set its own.
        - `options`: those of DataLoader (for an iterable data set only `collate_fn`).

        Raises SessionError for impossible sizes, for options that follow from the other arguments, and for a
        data set that does not know its position."""
        return loader.make(self._runtime.streams, dataset, Batch(global_batch, micro, seed), options)

    @property
    def loss_weight(self) -> float:
        """The factor on the mean over this rank's samples that makes the average over the ranks the mean over
        the global batch; 1.0 if all shares are equally large.

        `session.ddp` applies it to the gradients by itself. FSDP and other wrappers do not: multiply the loss
        with it there. A loss that is a sum over the rank's samples needs the factor world_size / global_batch
        instead."""
        return self._runtime.streams.weighting.weight

    def report(self, **values: Any) -> None:
        """Show numbers to the operator, as in `session.report(loss=loss, rate=0.1)`: at most once a second,
        the newest of each name.

        Values are numbers or one-element tensors. Tensors are read later, in another thread, so the call does
        not wait for a GPU. A value named `loss`, or ending in `_loss` or `/loss`, that is NaN or Inf is
        handled as in `check`."""
        self._runtime.reports.add(values, self._state.completed)

    def check(self, loss: Any, *, every: int = numeric_anomalies.LOOK_EVERY) -> None:
        """Report a loss that is NaN or Inf; the job's policy (--on-nan) decides what follows.

        `loss` is a number or a tensor of any shape. A tensor on a GPU is read only every `every` steps,
        because reading it waits for the GPU; anything else is checked at once."""
        self._runtime.anomalies.check(loss, every)

    def fault(self, why: str, *, rollback: bool = True) -> NoReturn:
        """Report that the numbers are wrong by the script's own judgement, with the reason `why`; never
        returns.

        All ranks go back to an older state; with `rollback=False` the job stops with this reason instead.
        Raises SessionError without an agent, or outside the elastic function."""
        self._runtime.anomalies.fault(why, rollback=rollback)

    def phase(self, name: str, *, timeout_s: float | None = None) -> AbstractContextManager[None]:
        """Declare slow work, so that it is not taken for a hang: `with session.phase("evaluate"): ...`.

        `name` is "compile", "checkpoint", "evaluate" or "data". `timeout_s`: seconds after which a rank still
        in the phase counts as hung; None: a limit per phase, longer than a step's (see
        docs/failures/hangs.md). Raises SessionError for another name or an impossible time."""
        return self._state.progress.phase(name, timeout_s)

    def close(self) -> None:
        """Release everything that the session holds. Calling it is optional: a session also ends with its
        process, or when the script makes the next one."""
        sessions.close(self._runtime)
