"""The session: what a training script holds in its hand."""

from __future__ import annotations

import functools
import os
import weakref
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from holdfast import coordinates, ddp
from holdfast.agreement import generators
from holdfast.agreement.equality import Equality
from holdfast.clean.guard import Guard
from holdfast.data import loader, stateful
from holdfast.data.sampler import Sampler
from holdfast.data.streams import Streams
from holdfast.data.taking import Batch
from holdfast.data.weighting import Weighting
from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.groups import collectives, groups
from holdfast.launch import traces
from holdfast.reentry import elastic, functions, joining, misuse, own_reports, sessions, stepping
from holdfast.reentry.after_step import AfterStep
from holdfast.reentry.agent_client import Gate
from holdfast.snapshots.checkpoint_requests import Asking, CheckpointHandle
from holdfast.snapshots.snapshot import Snapshots
from holdfast.state.claims import Claim
from holdfast.state.tracked import Tracked
from holdfast.telemetry import numbers, progress, reporting
from holdfast.telemetry.telling import Telling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.coordinates import Coordinates
    from holdfast.snapshots.snapshot import Kept

P = ParamSpec("P")
R = TypeVar("R")


class Session(Telling):
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
        self._environment = environment = Environment.read(os.environ)
        self._seed = seed
        self._tracked = Tracked()
        self._guard = Guard(self._tracked)
        self._snapshots = Snapshots(self._tracked)
        self._backend: str = groups.choose_backend(backend)
        self._rank: int = max(environment.rank, 0)
        self._world_size: int = environment.world_size
        self._generators = generators.Generators(self) if seed is None else None
        if self._generators is not None:
            self._snapshots.random = self._generators.found
        self._functions = functions.of(environment.member if environment.gate else "")
        self._snapshots.functions = self._functions.text
        self._phase, self._generation = self._functions.place()
        self._completed = self._functions.completed
        self._data_change = data_change
        self._begin_anew()
        self._device: torch.device | None = None
        self._ledger, self._board = environment.open_ledger(), environment.open_board()
        traces.register(environment.board)
        self._progress = progress.Progress(self._board)
        self._guard.on_optimizer = lambda _: self._progress.show("optimizer")
        self._guard.on_tail = lambda _: self._progress.show("tail")
        self._numbers = numbers.Numbers(self)
        self._skips: tuple[tuple[int, int], ...] = ()  # batches that are left out
        self._gate: Gate | None = None
        kept = self._functions.groups  # of the session before, whose generation may wait for this process
        again = kept is not None and kept.backend == self._backend
        self._groups = kept if kept and again else groups.Groups(environment.address, self._backend)
        if not again:
            self._functions.joined = None
        self._functions.groups = self._groups
        self._proof = collectives.Proof(self)
        self._mistakes = misuse.Mistakes(self)
        if environment.gate:
            misuse.check_no_group(sessions.living())
            self._connect(environment)
        sessions.add(self)

    def _begin_anew(self) -> None:
        """What this rank knows of its own training, before there is any."""
        self._held = -1
        self._held_in = self._functions.held_in  # the newest generation in which the state was put in place
        self._closed = ""  # why it cannot be used any more
        self._ended = self._completed  # so many steps' bodies had ended when the newest generation was left
        self._uncommitted: list[int] = []  # complete steps whose samples are not committed yet
        self._after = AfterStep(self)
        self._asking = Asking(self)
        self._owed = 0  # snapshots that were due where gradients were carried
        self._equality = Equality(self)
        self._given = False  # its state is not what this process computed, and steps have gone into it
        self._made = (-1, 0)  # step and generation of the newest snapshot
        self._last = -1  # the job's step with which the newest loop over steps ends
        self._inside = False  # in the elastic function
        self._late = False  # what is tracked is made in the elastic function, anew in each generation
        self._pending: Callable[[], None] | None = None  # puts the state in place
        self._kept: Kept | None = None
        self._old: list[weakref.ref[torch.nn.Module]] = []
        self._shard: str = ""
        self._said_shard: str = ""  # what the agent was told of it
        self._inexact: list[str] = []  # what of this rank is not as it would be in an undisturbed run
        self._first_of_generation: tuple[float, float, float] | None = None
        self._fresh = False
        self._wrapped: list[weakref.ref[torch.nn.Module]] = []
        self._weighting = Weighting()
        self._streams = Streams(self, self._data_change)
        self._tracked.contract = self._streams.text
        self._reports = reporting.Reports()

    def _connect(self, environment: Environment) -> None:
        sessions.make_way(self)
        self._address = self._groups.serve(self._own_sockets)
        self._gate = Gate(
            environment.gate,
            functools.partial(own_reports.hello, self),
            functools.partial(own_reports.beat, self),
            self._groups.sever,
        )
        self._gate.describe = progress.collectives
        self._groups.heed(self._gate.interrupted)
        self._gate.start()

    # ------------------------------------------------------------------ what a script uses

    @property
    def rank(self) -> int:
        """This process's rank in the current generation. Raises SessionError before it has one."""
        self._check_placed("rank")
        return self._rank

    @property
    def world_size(self) -> int:
        """How many ranks the current generation has. Raises SessionError before there is one."""
        self._check_placed("world_size")
        return self._world_size

    @property
    def layout(self) -> Coordinates:
        """Where it stands in the job's layout in the current generation, and the sizes of that. Raises
        SessionError before it has a place."""
        self._check_placed("layout")
        return coordinates.read(os.environ, self._rank, self._world_size)

    def _check_placed(self, what: str) -> None:
        if self._gate is not None and not self._generation:
            raise SessionError(
                f"session.{what}: this process has no place yet, a spare may get any: ask for it in the "
                "function under @session.elastic, or after it"
            )

    def mesh(self) -> DeviceMesh:
        """A device mesh of the job's layout: dimensions dp, pp, cp and tp. All ranks make it together, in
        the elastic function, anew in each generation."""
        sizes, names = self.layout.sizes, coordinates.AXES
        return init_device_mesh(self.device.type, sizes, mesh_dim_names=names)

    @property
    def step(self) -> int:
        """The number of completed steps, which is the number of the step that runs or comes next. Each
        elastic function counts its own, from 0."""
        return self._functions.local(self._completed)

    @property
    def data_step(self) -> int:
        """Which batch of the data this step is to consume: its own number, unless batches before it are left
        out by policy. `sample_indices` goes by it."""
        return self._functions.batch(self._completed, self._skips)

    @property
    def generation(self) -> int:
        """The number of the current set of process groups; 0 when training alone."""
        return self._generation

    @property
    def device(self) -> torch.device:
        """The device this rank computes on."""
        if self._device is None:
            self._device = groups.device_for(self._backend, max(self._environment.local_rank, 0))
        return self._device

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
        if self._inside and not (self._late and self._pending):
            raise SessionError(
                "track: call it before the function under @session.elastic is entered; or, when nothing is "
                "tracked by then, in it before the first step and before restore()"
            )
        claim = Claim.of(per_rank, shard, from_rank_0)
        with joining.looking():
            for name, thing in objects.items():
                if not per_rank:
                    stateful.refuse(name, thing)
                self._tracked.add(name, thing, claim)

    @property
    def catching_up(self) -> bool:
        """Whether this process joined the job later, and runs what the script has between elastic functions
        that were over by then: what it does here, other ranks have done before."""
        return self._functions.behind

    def restore(self) -> int:
        """Put the state of this generation's first step into what is tracked, if that has not been done yet;
        the number of completed steps. All ranks call it together. `steps` does it by itself: call it when the
        state is needed before the first step."""
        self._mistakes.used = True
        pending = self._pending
        if pending is not None:
            stepping.check_interrupted(self)
            pending()
            self._pending = None
        return self._completed

    def elastic(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorator: the function is entered anew for every generation; its last result is returned when all
        ranks have finished it and its final state is safe. Exceptions of the function itself are raised as
        they are.

        A script may have several, and call one several times, each counting its own steps. A process that
        joins the job later returns from those that are over with what they returned: plain data, equal on
        all ranks, or it is refused there. What stands behind a function runs at least once."""
        return elastic.wrap(self, function)

    def after_step(self, callback: Callable[[int], object]) -> None:
        """Call `callback(step)` whenever a step is complete, on every rank that has completed it: an
        evaluation, "save the best", early stopping. It also runs when the ranks have to form anew behind the
        step, and once more when a process died meanwhile, or the step is run again: so it must not change
        what is tracked. Raises SessionError in the elastic function, or on what cannot be called."""
        self._after.add(callback)

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
        self._guard.skippable = tail == "skippable"
        misuse.check_inside(self, "steps")
        misuse.check_kept(self)
        chosen = seed if seed is None or isinstance(seed, int) else self._seed
        self.restore()
        generators.tell_lost(self, chosen)
        stepping.after_break(self)
        self._last = self._completed - self.step + total
        try:
            while self.step < total:
                stepping.begin(self, chosen)
                yield self.step
                stepping.complete(self)
        except GeneratorExit:  # left within a step, by a break of the loop or of a collective
            self._progress.mark("none")
            raise
        finally:
            self._progress.mark("after")
        stepping.check_interrupted(self)

    def checkpoint(self) -> CheckpointHandle:
        """Have the state made durable, whatever the intervals say: as it is when the current step is
        complete, or now when none runs. All ranks call it in the same step. The handle tells what became of
        it: nothing is skipped silently. Raises SessionError outside of the elastic function."""
        if not self._inside:
            raise SessionError("checkpoint: call it in the function under @session.elastic")
        self.restore()
        return self._asking.ask(now=not self._guard.left_half)

    def ddp(self, module: torch.nn.Module, *, weighted: bool = True, **options: Any) -> torch.nn.Module:
        """The module wrapped in DistributedDataParallel whose order of summation never changes, so that a
        disturbed run ends bit-identical to an undisturbed one. `options` are DDP's. The module itself when
        this rank trains alone.

        `weighted`: when the ranks' shares of the global batch (see `sample_indices`) are not equally large,
        gradients are weighted so that they are exactly those of the mean over the global batch. That is
        right for a loss which is the mean over the rank's own samples. With another normalisation give
        False, and have the average over the ranks come out right: see `loss_weight`."""
        misuse.check_wraps(self)
        if self._world_size == 1 or not dist.is_initialized():
            return module
        if weighted:
            self._weighting.watch(module)
        wrapped = ddp.wrap(module, self.device, options)
        if wrapped is not module:
            self._wrapped.append(weakref.ref(wrapped))
        return wrapped

    def sample_indices(
        self, n: int, global_batch: int, seed: int = 0, *, micro: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """This rank's share of the current step's samples out of range(n): int64, shuffled anew every epoch.
        Which samples a step has depends on the step alone, never on the world size; the ranks of one replica
        of the model share theirs (see `layout`). `micro`: (i, count) gives the i-th of count parts of the
        share. Each data set has a seed of its own. Raises SessionError."""
        return self._streams.give(n, global_batch, seed, micro)

    def sampler(self, n: int, global_batch: int, *, micro: int | None = None, seed: int = 0) -> Sampler:
        """A batch sampler for a DataLoader of your own: what `sample_indices` gives, of the step that runs
        and of those to come. `micro`: samples in a micro-batch, at most. Raises SessionError."""
        return Sampler(self, n, global_batch, micro, seed)

    def loader(
        self, dataset: Any, global_batch: int, *, micro: int | None = None, seed: int = 0, **options: Any
    ) -> loader.Loader | stateful.StateLoader:
        """The batches of a data set: `for step, batch in zip(session.steps(n), session.loader(...))`, exact
        through failures, with workers, too. With `micro` (samples in a micro-batch, at most) each step is
        given its micro-batches, an iterator with a length. `options` are DataLoader's. An iterable data set
        must have state_dict and load_state_dict. Raises SessionError."""
        return loader.make(self, dataset, Batch(global_batch, micro, seed), options)

    @property
    def loss_weight(self) -> float:
        """What the mean over this rank's samples of the current step is to be multiplied with, so that the
        average over the ranks is the mean over the global batch: 1.0 when all shares are equally large.
        `session.ddp` does that to the gradients by itself; FSDP and other wrappers do not: multiply the loss
        with it there. A loss that is a sum over the rank's samples is to be multiplied with
        world_size / global_batch instead."""
        return self._weighting.weight

    def close(self) -> None:
        """Let go of everything. A session that is not closed ends with its process, or when the script makes
        the next one; only one at a time has an agent."""
        self._closed = self._closed or "it was closed"
        self._asking.end("the session was closed")
        if self._functions.joined is None:  # else a generation waits for the next session of this process
            self._groups.dissolve()
        self._mistakes.close()
        if self._gate is not None:
            self._gate.close()
        self._snapshots.detach()
        for thing in (self._ledger, self._board):
            if thing is not None:
                thing.close()
        self._ledger = self._board = None
        self._progress.close()

    # ------------------------------------------------------------------ for the gate's thread

    def _own_sockets(self) -> set[int]:
        return self._gate.inodes() if self._gate is not None else set()
