"""The session: what a training script holds in its hand."""

from __future__ import annotations

import functools
import os
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from holdfast import coordinates, ddp
from holdfast.data import sampling
from holdfast.data.weighting import Weighting
from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.launch import traces
from holdfast.reentry import elastic, groups, misuse, proof, stepping, words
from holdfast.reentry.gate import Gate
from holdfast.reentry.guard import Guard
from holdfast.state import randomness
from holdfast.state.asking import Asking, CheckpointHandle
from holdfast.state.snapshot import Snapshots
from holdfast.state.tracked import Tracked
from holdfast.telemetry import numbers, progress, reporting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from holdfast.coordinates import Coordinates
    from holdfast.state.snapshot import Kept

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """Connects this rank to its agent and makes its training survive failures.

    Without an agent in the environment the same script trains alone, or under torchrun. `seed`: every step
    begins with torch, random and numpy seeded from (seed, step, rank), so that its randomness survives the
    loss of a rank; None leaves them alone: then the generators' states go into each snapshot, and a rank that
    goes on from its own snapshot has them again, but one that takes another rank's state has not.
    `backend`: of torch.distributed; by default nccl beside a GPU, else gloo. Raises SessionError."""

    def __init__(self, *, seed: int | None = 0, backend: str | None = None) -> None:
        self._environment = environment = Environment.read(os.environ)
        self._seed = seed
        self._tracked = Tracked()
        self._guard = Guard(self._tracked)
        self._snapshots = Snapshots(self._tracked)
        self._backend: str = groups.choose_backend(backend)
        self._rank: int = max(environment.rank, 0)
        self._world_size: int = environment.world_size
        if seed is None:
            self._snapshots.random = lambda: randomness.capture(self._rank)
        self._generation, self._completed, self._phase = 0, 0, "starting"
        self._held = -1
        self._held_in = 0  # the newest generation in which the state was put in place
        self._asking = Asking(self)
        self._made = (-1, 0)  # step and generation of the newest snapshot
        self._inside = False  # in the elastic function
        self._late = False  # what is tracked is made in the elastic function, anew in each generation
        self._pending: Callable[[], None] | None = None  # puts the state in place
        self._kept: Kept | None = None
        self._old: list[weakref.ref[torch.nn.Module]] = []
        self._shard: str = ""
        self._said_shard: str = ""  # what the agent was told of it
        self._first_of_generation: tuple[float, float, float] | None = None
        self._fresh = False
        self._wrapped: list[weakref.ref[torch.nn.Module]] = []
        self._weighting = Weighting()
        self._ahead = sampling.Ahead()
        self._reports = reporting.Reports()
        self._device: torch.device | None = None
        self._ledger, self._board = environment.open_ledger(), environment.open_board()
        traces.register(environment.board)
        self._progress = progress.Progress(self._board)
        self._guard.on_optimizer = lambda _: self._progress.show("optimizer")
        self._guard.on_tail = lambda _: self._progress.show("tail")
        self._numbers = numbers.Numbers(self)
        self._skips: tuple[tuple[int, int], ...] = ()  # batches that are left out
        self._gate: Gate | None = None
        self._groups = groups.Groups(environment.address, self._backend, self._own_sockets)
        self._proof = proof.Proof(self)
        self._mistakes = misuse.Mistakes(self)
        if environment.gate:
            misuse.check_no_group(_sessions)
            self._connect(environment)
        _sessions.add(self)

    def _connect(self, environment: Environment) -> None:
        self._address = self._groups.serve()
        self._gate = Gate(
            environment.gate,
            functools.partial(words.hello, self),
            functools.partial(words.beat, self),
            self._groups.sever,
        )
        self._gate.describe = progress.collectives
        self._groups.heed(self._gate.interrupted)
        self._gate.start()

    # ------------------------------------------------------------------ what a script uses

    @property
    def rank(self) -> int:
        """This process's rank in the current generation."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many ranks the current generation has."""
        return self._world_size

    @property
    def layout(self) -> Coordinates:
        """Where it stands in the job's layout in the current generation, and the sizes of that."""
        return coordinates.read(os.environ, self._rank, self._world_size)

    def mesh(self) -> DeviceMesh:
        """A device mesh of the job's layout: dimensions dp, pp, cp and tp. All ranks make it together, in
        the elastic function, anew in each generation."""
        sizes, names = self.layout.sizes, coordinates.AXES
        return init_device_mesh(self.device.type, sizes, mesh_dim_names=names)

    @property
    def step(self) -> int:
        """The number of completed steps, which is the number of the step that runs or comes next."""
        return self._completed

    @property
    def data_step(self) -> int:
        """Which batch of the data this step is to consume: its own number, unless batches before it are left
        out by policy. `sample_indices` goes by it."""
        return numbers.batch(self._completed, self._skips)

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

    def track(self, *unnamed: Any, **objects: Any) -> None:
        """Keep these objects' state through failures: anything with state_dict and load_state_dict, and
        torch.Generator. Raises SessionError.

        Call it before the elastic function is entered; or, for what is tied to a process group (FSDP2, tensor
        parallel), track everything in it, before its first step: then what is tracked is made anew in each
        generation, and the state comes with the first call of `steps`, or of `restore`."""
        misuse.check_named(unnamed)
        if self._inside and not (self._late and self._pending):
            raise SessionError(
                "track: call it before the function under @session.elastic is entered; or, when nothing is "
                "tracked by then, in it before the first step and before restore()"
            )
        for name, thing in objects.items():
            self._tracked.add(name, thing)

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
        """Decorator: the function is entered anew for every generation; its last result is returned when
        the whole job is complete. Exceptions of the function itself are raised as they are."""
        return elastic.wrap(self, function)

    def steps(self, total: int, *, seed: int | str | None = "session") -> Iterator[int]:
        """Yield the steps that are left of `total`. A step is complete when the next one is asked for; one
        left by `break` is, too, if its optimizer has stepped, and else comes again."""
        if type(total) is not int or total < 0:
            raise SessionError(f"steps: total must be an integer of 0 or more, not {total!r:.80}")
        misuse.check_inside(self, "steps")
        chosen = self._seed if isinstance(seed, str) else seed
        self.restore()
        stepping.after_break(self)
        try:
            while self._completed < total:
                stepping.begin(self, chosen)
                yield self._completed
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

    def sample_indices(self, n: int, global_batch: int, seed: int = 0) -> torch.Tensor:
        """This rank's share of the current step's samples out of range(n): int64, shuffled anew every epoch.
        Which samples a step has depends on the step alone, never on the world size; the ranks of one replica
        of the model share theirs (see `layout`). Raises SessionError."""
        sampling.check(n, global_batch)
        at = self.layout
        places = sampling.share(global_batch, at.dp_rank, at.dp)
        self._weighting.share(len(places), global_batch, at.dp)
        chosen = self._ahead.take(n, self.data_step, global_batch, places, seed)
        if self._ledger is not None:
            self._ledger.attempt(
                self._completed,
                self._generation,
                self._rank,
                world_size=self._world_size,
                total=global_batch,
                indices=chosen.tolist(),
            )
        return chosen

    @property
    def loss_weight(self) -> float:
        """What the mean over this rank's samples of the current step is to be multiplied with, so that the
        average over the ranks is the mean over the global batch: 1.0 when all shares are equally large.
        `session.ddp` does that to the gradients by itself; FSDP and other wrappers do not: multiply the loss
        with it there. A loss that is a sum over the rank's samples is to be multiplied with
        world_size / global_batch instead."""
        return self._weighting.weight

    def report(self, **values: Any) -> None:
        """Show numbers to the operator, once a second at most. Tensors are read later, off this thread."""
        self._reports.add(values, self._completed)

    def check(self, loss: Any, *, every: int = numbers.LOOK_EVERY) -> None:
        """Have a loss that is NaN or Inf noticed; what follows is the job's policy (--on-nan). A tensor on a
        GPU is looked at every `every` steps, for the GPU is waited for then; anything else at once."""
        self._numbers.check(loss, every)

    def fault(self, why: str, *, rollback: bool = True) -> NoReturn:
        """The numbers are wrong, by the script's own judgement: all ranks go back to an older state, or with
        `rollback` false the job stops with this reason. Raises SessionError where there is no agent."""
        self._numbers.fault(why, rollback=rollback)

    def phase(self, name: str, *, timeout_s: float | None = None) -> AbstractContextManager[None]:
        """Declare what is done within: compile, checkpoint, evaluate or data. It may take longer than a step;
        a rank that has not left it after `timeout_s` counts as hung (by default long: see hangs in the docs).
        Raises SessionError on another name."""
        return self._progress.phase(name, timeout_s)

    def close(self) -> None:
        """Let go of everything. A session that is not closed ends with its process."""
        self._asking.end("the session was closed")
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

    def _neutralise(self) -> None:
        """In a forked child (a DataLoader's worker): the agent and the peers are the parent's."""
        self._groups.neutralise()
        if self._gate is not None:
            self._gate.neutralise()


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for session in list(_sessions):
        session._neutralise()


os.register_at_fork(after_in_child=_after_fork_in_child)
