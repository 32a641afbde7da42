"""Lead through a loop over epochs and batches that the script itself has written.

    for epoch in loop.epochs(3):
        for batch in ...:  # loop.batches(...)
            ...

Theory of operation. The function around the loop is entered again in each generation, and the loop goes on
at the newest boundary: `epochs` begins in the epoch of there, and the batches after the last one of there. A
step is open all the time: one ends after each body in which an optimizer has stepped, and where an epoch
ends, and the next one begins at once. So whatever the script does in the loop belongs to a step, and is
undone with it. How far the loop is, is tracked, and changes only where a step ends."""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import torch

from holdfast.data.seeding import PreservedGenerators
from holdfast.errors import SessionError
from holdfast.groups.groups import carrier, gather_numbers
from holdfast.integrations import unkept
from holdfast.integrations.own_attributes import OwnAttributes
from holdfast.integrations.placed import data_values, seed_evaluation
from holdfast.integrations.plain import gather
from holdfast.integrations.runs.trainer_log import TrainerLog
from holdfast.telemetry.training_end import OPEN_FROM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.optim.swa_utils import AveragedModel

    from holdfast.integrations.runs import LoggerRun
    from holdfast.session import Session

_SEED = (1 << 31) - 1
_OPENED_MAX = 1 << 10
"""How often another loader is opened in a step with orders that no other step has."""


class LoopProgress:
    """The tracked object: where the loop is.

    `epoch`, and how many of its batches are over; `ranks`: how many there were; `over`: the loop is done;
    `logged`: how many calls to loggers the steps so far have made; `seed`: of samples and steps; `counts`:
    what the integration counts itself, of every rank."""

    def __init__(self) -> None:
        self.epoch = self.batch = self.ranks = self.logged = self.seed = 0
        self.over = False
        self.counts: list[list[int]] = []

    def state_dict(self) -> dict[str, Any]:
        """The progress at the newest boundary."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a progress."""
        vars(self).update(state)


class LoopCounts(Protocol):
    """What an integration counts itself. It may differ by rank."""

    def read(self) -> list[int]:
        """The counts, always as many."""

    def set(self, counts: list[int]) -> None:
        """Go on from these."""


class LoopMemory:
    """What a process remembers of one call of a function under `elastic`, through all generations.

    How many calls to loggers it has made, and how many belong to steps that have ended (`sealed`); whether
    schedulers have been looked for (`looked`); the averages of weights that are or were tracked (`averages`);
    the loggers with one run per job (`log`); what has been seen of `attributes`; what the integration keeps
    by names (`kept`)."""

    def __init__(self, averages: WeakSet[AveragedModel] | None = None) -> None:
        self.made = self.sealed = 0
        self.looked = False
        self.averages: WeakSet[AveragedModel] = WeakSet() if averages is None else averages
        self.log: TrainerLog | None = None
        self.attributes: OwnAttributes | None = None
        self.kept: dict[str, Any] = {}

    def of_next(self) -> LoopMemory:
        """That of the next call. Averages may outlive the function in which they were tracked."""
        return LoopMemory(self.averages)


class OwnLoop:
    """The loop of one generation. For errors: `what` it is a part of, `how` a scheduler is kept there, and
    how to `keep` another object."""

    def __init__(self, session: Session, memory: LoopMemory, what: str, how: str, keep: str) -> None:
        self.session, self._memory, self._what, self._how = session, memory, what, how
        self._keep = keep
        self.progress = LoopProgress()
        self._led = self._open = self._read = self._moved = False
        self._logged = 0
        self._opened: dict[int, int] = {}  # other loaders, by id: the newest number, within this step
        # The script's objects, besides tracked modules, that may lose attributes; those that give samples.
        self.watched: list[Any] = []
        self.data: list[Any] = []
        self.told: dict[str, Any] = {}  # what the integration was told that steps depend on, by name
        self.dataset: Any = None  # of the training
        self.counts: LoopCounts | None = None
        self.loss = session.runtime.step_loss
        self._memory.attributes = self._memory.attributes or OwnAttributes(what, f"If it matters, {keep}")
        self._batches = (math.inf, math.inf)  # of an epoch, and of all

    # ------------------------------------------------------------------ for the integration

    def moved(self) -> None:
        """An optimizer has stepped, or left out a step that was due: the step ends with this body."""
        self._moved = True

    def settings(self) -> list[tuple[str, Any]]:
        """What the training may depend on, with names: what the integration was told, and the data."""
        return [*self.told.items(), *data_values(self.dataset)]

    @property
    def kept(self) -> dict[str, Any]:
        """What the integration keeps through generations, by names."""
        return self._memory.kept

    def batches(self, open_at: Callable[[int, int], Iterator[Any]]) -> Iterator[Any]:
        """Yield what is left of this epoch's batches. `open_at(epoch, position)`: they, after `position` of
        them. A step ends when the next batch is asked for."""
        if not self._open:
            raise SessionError(f"{self._what}: read the training's loader within the loop over epochs(...)")
        if self._read:
            raise SessionError(
                f"{self._what}: the training's loader is read a second time in epoch {self.progress.epoch}: "
                "read it once per epoch, or prepare another loader of this data set"
            )
        self._read = True
        with PreservedGenerators():
            found = open_at(self.progress.epoch, self.progress.batch)
        taken = self.progress.batch
        while True:
            with PreservedGenerators():
                batch = next(found, _NO_MORE)
            if batch is _NO_MORE:
                return
            self._moved = False
            self.loss.batch()
            yield batch
            taken += 1
            if self._moved:
                self.progress.batch = taken
                self._end()
                self._begin()

    def others(self, loader: Any, open_as: Callable[[int], Iterator[Any]]) -> Iterator[Any]:
        """Yield the batches of a loader that is not the training's. `open_as(number)`: the order is that of
        this number, which follows from the step and how often the loader was opened in it.

        Raises SessionError if a batch is asked for in a later step: nothing keeps that position."""
        place = self._open, self.session.step
        nth = self._opened[id(loader)] = self._opened.get(id(loader), -1) + 1
        seed_evaluation(loader, self.progress.seed, self.session.step, self.session.rank)
        found = open_as((self.session.step + 1) * _OPENED_MAX + nth if self._led else nth)
        while (batch := next(found, _NO_MORE)) is not _NO_MORE:
            yield batch
            if (self._open, self.session.step) != place:
                raise SessionError(
                    f"{self._what}: a loader that is not the training's is read across steps: it begins anew "
                    "when a rank dies. Open it in each step, or give the training a data set of both"
                )

    def logs(self) -> bool:
        """A call to a logger: whether it is to be made. It is not, if it was made before: in a step that runs
        again, or before a loop that goes on."""
        if not self._led and self.session.step:
            return False
        self._logged += 1
        if self._logged <= self._memory.made:
            return False
        self._memory.made = self._logged
        return True

    def seal_logs(self) -> None:
        """Have all ranks know which calls to loggers rank 0 has made, though its step has not ended.

        All ranks call it together."""
        if self._open:
            self._sealed(self._rows(self._logged)[0][0])

    def _sealed(self, logged: int) -> None:
        self._logged = logged  # a script may log at rank 0 only
        self._memory.sealed = max(self._memory.sealed, logged)

    def keep_runs(self, runs: Sequence[LoggerRun]) -> None:
        """These loggers have one run per job: `log` to them by their index. Call it before `epochs`, in each
        generation with equal ones."""
        if self._memory.log is None:
            self._memory.log = TrainerLog(self.session, runs)
        self._memory.log.renew(runs)
        self._memory.log.track()

    def log(self, index: int, step: int | None, values: Mapping[str, Any]) -> None:
        """Log numbers to one of them. They count when the step ends, and only those of rank 0."""
        was_logged = self.session.step and not self._led  # before the loop, when it was entered first
        if self._memory.log is not None and not was_logged:
            self._memory.log.log(index, step, values)

    # ------------------------------------------------------------------ for the script

    def epochs(self, total: int, batches: float = math.inf) -> Iterator[int]:
        """Yield the epochs that are left, up to `total - 1`. `batches`: of each; math.inf: not known."""
        if self._led:
            raise SessionError(f"{self._what}: one loop over epochs(...) in a function under @elastic")
        self._led, self._batches = True, (batches, total * batches)
        progress = self.progress
        progress.seed = torch.initial_seed() & _SEED
        self._find_schedulers()
        self._find_averages()
        self.session.restore()
        self._take_place()
        if self._memory.log is not None:
            self._memory.log.begin()
        while not progress.over and progress.epoch < total:
            self._read = False
            self._begin()
            yield progress.epoch
            self._find_averages()
            progress.epoch, progress.batch = progress.epoch + 1, 0
            self._end()

    def finish(self) -> None:
        """The function has returned: if it left the loop before its end, that was its end."""
        if self._open:
            self.progress.over = True
            self._end()

    def _find_schedulers(self) -> None:
        """Raise SessionError for a scheduler of a tracked optimizer that is not tracked itself.

        Once per call of the function: a scheduler of an older generation may still be there, and that of an
        earlier function until it is collected."""
        if self._memory.looked:
            return
        self._memory.looked = True
        tracked = self.session.runtime.state.tracked
        if unkept.scheduler(tracked) is not None:
            gc.collect()
            self._refuse(unkept.scheduler(tracked), self._how)

    def _find_averages(self) -> None:
        """Raise SessionError for an AveragedModel that is not tracked, whenever it was made.

        That of an earlier training may still be there until it is collected."""
        tracked, kept = self.session.runtime.state.tracked, self._memory.averages
        if unkept.average(tracked, kept) is not None:
            gc.collect()
            self._refuse(unkept.average(tracked, kept), f"before epochs(...), {self._keep}")

    def _refuse(self, lost: Any, how: str) -> None:
        if lost is not None:
            raise SessionError(
                f"{self._what}: the {type(lost).__name__} is not kept, and would begin anew when a rank "
                f"dies: {how}"
            )

    # ------------------------------------------------------------------ steps

    def _take_place(self) -> None:
        progress, world = self.progress, self.session.world_size
        if progress.ranks not in (0, world):
            raise SessionError(
                f"{self._what}: {progress.ranks} ranks trained the state, and there are {world}: the batches "
                "would differ. Start the job with as many ranks as before, and with spares"
            )
        if progress.ranks:
            self._logged = progress.logged
        progress.ranks = world
        if self.counts is not None and progress.counts:
            self.counts.set(progress.counts[self.session.rank])
        sealed = max(row[0] for row in self._rows(self._memory.sealed))
        self._memory.made = max(self._memory.made, sealed)

    def _begin(self) -> None:
        self.session.begin_step(OPEN_FROM, seed=self.progress.seed)
        self._open, self._moved = True, False
        self._opened.clear()
        self.loss.begin()
        (each, total), progress = self._batches, self.progress
        done = progress.epoch * each + progress.batch if total < math.inf else 0
        self.session.runtime.training_end.units([(done, total)])

    def _end(self) -> None:
        """End the step. No rank does before all have come here: what a dead rank had to do in it (log, save)
        is done, or the step runs again."""
        progress = self.progress
        calls = self._memory.log.calls() if self._memory.log is not None else b""
        counts = self.counts.read() if self.counts is not None else []
        rows = self._rows(self._logged, progress.epoch, progress.batch, len(calls), *counts)
        if any(row[1:3] != rows[0][1:3] for row in rows):
            places = ", ".join(
                f"rank {rank}: epoch {row[1]}, batch {row[2]}" for rank, row in enumerate(rows)
            )
            raise SessionError(
                f"{self._what}: the ranks are at different places ({places}): all must read as many batches, "
                "and step their optimizers at the same ones"
            )
        self._look_at_attributes()
        self._sealed(rows[0][0])
        progress.logged, progress.counts = self._logged, [row[4:] for row in rows]
        self._open = False
        self._opened.clear()
        self.loss.end()
        if self._memory.log is None:
            self.session.end_step()
            return
        self._memory.log.settle(gather(calls, *self._ranks)[0] if rows[0][3] else b"")
        self.session.end_step()
        self._memory.log.completed()

    def _look_at_attributes(self) -> None:
        if self.session.rank or self._memory.attributes is None:
            return
        tracked = list(self.session.runtime.state.tracked.objects.values())
        modules = [each for each in tracked if isinstance(each, torch.nn.Module)]
        others = [each for each in self.watched if not any(each is kept for kept in tracked)]
        inner = [part for each in modules for part in each.modules()]
        attributes, epoch_is_over = self._memory.attributes, not self.progress.batch
        look = attributes.look if epoch_is_over else attributes.step_ended
        look([*inner, *others], trained=modules, data=self.data)

    @property
    def _ranks(self) -> tuple[int, torch.device]:
        return self.session.world_size, self.session.device

    def _rows(self, *numbers: int) -> list[list[int]]:
        """These numbers of every rank."""
        world = self.session.world_size
        if world == 1:
            return [list(numbers)]
        device = carrier(torch.distributed.get_backend(), self.session.device)
        return gather_numbers(list(numbers), device, world)


def batches_of(loader: Any) -> float:
    """How many batches this rank reads of a loader in an epoch; math.inf: it does not say."""
    try:
        return len(loader)
    except TypeError:
        return math.inf


_NO_MORE = object()
