"""Define Session, the object through which a training script uses Holdfast.

It is a facade: every method hands its work to a component, and no module inside this package imports it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, Unpack

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from holdfast import coordinates, ddp
from holdfast.anatomy import declaring
from holdfast.data import stateful
from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.groups import waiting
from holdfast.reentry import elastic, joining, misuse, sessions, stepping
from holdfast.reentry.runtime import Runtime
from holdfast.session_samples import SampleMethods
from holdfast.session_steps import StepMethods
from holdfast.state.claims import Claim
from holdfast.telemetry import gradient_policy, numeric_anomalies

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from holdfast.anatomy.declaring import ComputeNumbers
    from holdfast.coordinates import Coordinates
    from holdfast.reentry.checkpoint_requests import CheckpointHandle

P = ParamSpec("P")
R = TypeVar("R")


class Session(StepMethods, SampleMethods):
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
    - `total_steps`: how many steps all elastic functions of the job train together, for the time that is
      left. None: that of the loop that runs, while it is the script's only one.

    Raises SessionError if the environment is malformed, if the script has made a process group itself, or if
    another session is in its elastic function."""

    def __init__(
        self,
        *,
        seed: int | None = 0,
        backend: str | None = None,
        data_change: str = "refuse",
        total_steps: int | None = None,
    ) -> None:
        environment = Environment.read(os.environ)
        self._runtime = Runtime(
            environment, seed=seed, backend=backend, data_change=data_change, total_steps=total_steps
        )
        self._state = self._runtime.state
        sessions.begin(self._runtime)

    @property
    def runtime(self) -> Runtime:
        """The session's components, for tests and diagnosis. Not part of the stable interface."""
        return self._runtime

    # ------------------------------------------------------------------ what a script uses

    @property
    def rank(self) -> int:
        """This process's rank in the current generation, from 0; in a replay the rank whose step it runs
        (see `step_function`). Raises SessionError before it has a place."""
        self._state.check_placed("rank")
        return self._state.place

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

        An object needs `state_dict` and `load_state_dict`, or is a random generator of torch, numpy or
        Python. By default all ranks must hold the same state, or parts of DTensors, or one stage each with
        --pipeline-parallel; Holdfast compares the ranks at the start and while training. Three arguments say
        otherwise for all objects of this call:

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

    def on_form(self, callback: Callable[[], object]) -> None:
        """Call `callback()` in every generation before the elastic function is entered: rank, world size and
        process groups are new then, and the state is not restored yet.

        For what a framework remembers of them. Raises SessionError inside the elastic function, or if
        `callback` cannot be called."""
        self._runtime.formations.on_form(callback)

    def on_leave(self, callback: Callable[[], object]) -> None:
        """Call `callback()` whenever the elastic function is left, at its end or by a failure, before the
        process groups are dissolved.

        For loaders to be stopped, and references to old groups to be dropped. Peers may be dead, so it must
        use no collectives. Raises SessionError inside the elastic function, or if `callback` cannot be
        called."""
        self._runtime.formations.on_leave(callback)

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
        if weighted:
            self._runtime.streams.weighting.watch(module)
        else:
            self._runtime.streams.weighting.by_script = True
        if self._state.world_size == 1 or not dist.is_initialized():
            self._runtime.calls.watch(module)
            return module
        wrapped = ddp.wrap(module, self.device, waiting.guarded(options), self._runtime.waiting)
        self._runtime.calls.watch(wrapped)
        if wrapped is not module:
            self._state.entry.wrapped.append(weakref.ref(wrapped))
        return wrapped

    def report(self, **values: Any) -> None:
        """Show numbers to the operator, as in `session.report(loss=loss, rate=0.1)`: at most once a second,
        the newest of each name. Rank 0's `loss` is also shown by `holdfast top` and the status page.

        Values are numbers or one-element tensors. Tensors are read later, in another thread, so the call does
        not wait for a GPU. A value named `loss`, or ending in `_loss` or `/loss`, that is NaN or Inf is
        handled as in `check`."""
        if not self._state.replaying:
            self._runtime.reports.add(values, self._state.completed)
            self._runtime.gradients.loss(values.get("loss"))

    def check(self, loss: Any, *, every: int = numeric_anomalies.LOOK_EVERY) -> None:
        """Report a loss that is NaN or Inf; the job's policy (--on-nan) decides what follows.

        `loss` is a number or a tensor of any shape. A tensor on a GPU is read only every `every` steps,
        because reading it waits for the GPU; anything else is checked at once."""
        if not self._state.replaying:
            self._runtime.gradients.loss(loss)
            self._runtime.anomalies.check(loss, every)

    def watch(
        self, model: torch.nn.Module, *, every: int = gradient_policy.EVERY, on_nan: str = "report"
    ) -> None:
        """Watch the gradients of a model, and the loss given to `check` or `report`, for diagnosis.

        Every `every` steps the gradients of each parameter are measured; nothing waits for a GPU. Give a
        model that is built in the elastic function again in each generation. `on_nan`: what follows a
        gradient that is NaN or Inf.

        - "report": a finding.
        - "skip": all ranks leave the step out together. Each step then waits for the GPU.
        - "rollback": all ranks go back to an older state. "stop": the job stops.

        Raises SessionError for a wrong value."""
        self._runtime.gradients.watch(model, every, on_nan)

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
        return declaring.phase(self._state.progress, self._state.times, name, timeout_s)

    def count(self, *, tokens: int = 0, flops: float = 0.0) -> None:
        """Add tokens and floating-point operations to the running step, for diagnosis: what only the script
        knows. Several calls in a step add up; the numbers are this rank's own.

        Raises SessionError outside the elastic function, or for a number that is negative, not finite or
        larger than any step can need."""
        misuse.check_inside(self._state, "count")
        declaring.count(self._state.times, tokens, flops)

    def declare_compute(self, **numbers: Unpack[ComputeNumbers]) -> None:
        """Say what a token costs, for MFU (docs/diagnosis/time.md): layers, hidden, sequence; and, where they
        cannot be known, parameters, dtype, peak_flops. Raises SessionError for another name, or an
        impossible number."""
        declaring.declare_compute(self._state.times, numbers)

    def close(self) -> None:
        """Release everything that the session holds. Calling it is optional: a session also ends with its
        process, or when the script makes the next one."""
        sessions.close(self._runtime)
