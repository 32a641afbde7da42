"""Write what a trainer logs to its loggers: to one run of each per job, each call once.

The calls that rank 0 has made in a step are given to all ranks when the step ends, and become entries of the
tracked state. Entries are numbered through the job, and a run says which of them it has (`runs`). A run is
made once, by the first process that is rank 0; what another process needs to find it is tracked, too."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError
from holdfast.integrations.entry_log import EntryLog
from holdfast.integrations.log_writer import Entry
from holdfast.integrations.plain import gather
from holdfast.integrations.runs import STEP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.integrations.log_writer import Logger
    from holdfast.integrations.runs import Found, LoggerRun
    from holdfast.session import Session

KEEP, CAPACITY = 200, 10_000
"""How many entries are tracked, and how many may wait: as of StepLog."""
Call = tuple[int, int | None, dict[str, Any]]
"""One call to a logger: its index, the trainer's step, and the numbers."""
_LEFT_OUT = "%s: %r=%.80r is not logged: under Holdfast only numbers are"
log = logging.getLogger("holdfast.sdk")


class RunLog(EntryLog):
    """The log of one logger. `found`: how another process finds its run; None: it has not been made."""

    def __init__(self, session: Session, run: LoggerRun) -> None:
        super().__init__(session, self._open, KEEP, CAPACITY)
        self.run = run
        self.found: Found | None = None
        self.last = 0  # how many entries came after the last step: they are not tracked, but numbered

    def put(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Add a call, in a step that is about to end, or after the last one."""
        number = self._next
        trained = number if step is None else step
        self._add_values(number, {**values, STEP: trained}, trained)

    def put_last(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Have a call written that was made after the last step."""
        number = self._next
        self.last += 1
        if self._session.rank == 0:
            self._give()
            values = {**values, STEP: number if step is None else step}
            self._writer.put([Entry(number, self._session.generation, values)])

    def state_dict(self) -> dict[str, Any]:
        """The newest entries, and how to find the run."""
        return {**super().state_dict(), "run": json.dumps(self.found)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the newest entries, and the run."""
        super().load_state_dict(state)
        self.found = json.loads(state["run"]) or self.found

    @property
    def _next(self) -> int:
        first = int(self.found["first"]) if self.found is not None else 0
        return max(super()._next, first) + self.last

    def _open(self, _number: int) -> Logger:
        assert self.found is not None
        return self.run.open(self.found)


class TrainerLog:
    """All loggers of a trainer. `runs`: one for each, in the same order on all ranks."""

    def __init__(self, session: Session, runs: Sequence[LoggerRun]) -> None:
        self._session = session
        self._logs = [RunLog(session, run) for run in runs]
        self._calls: list[Call] = []  # of the step that runs
        self._told: set[tuple[int, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._logs)

    def track(self) -> None:
        """Track what is kept. Where the script tracks its objects."""
        for index, each in enumerate(self._logs):
            named: dict[str, Any] = {f"log_{index}": each}
            self._session.track(**named)

    def begin(self) -> None:
        """A generation begins, and its state is restored: agree on the runs. All ranks call it together."""
        if not self._logs:
            return
        if self._session.rank:
            for each in self._logs:
                each.leave()
        rows = self._gathered([(each.found, each.last) for each in self._logs])
        known = next(([found for found, _ in row] for row in rows if all(found for found, _ in row)), None)
        if known is None:
            made = [each.run.make() for each in self._logs] if self._session.rank == 0 else []
            known = self._gathered(made)[0]
        for index, (each, found) in enumerate(zip(self._logs, known, strict=True)):
            each.found, each.last = found, max(row[index][1] for row in rows)
            each.run.tell(found)

    def renew(self, runs: Sequence[LoggerRun]) -> None:
        """A script has made its loggers again, the same ones, and a generation begins."""
        if len(runs) != len(self._logs):
            raise SessionError(f"the script has made {len(self._logs)} loggers, and now makes {len(runs)}")
        for each, run in zip(self._logs, runs, strict=True):
            each.run = run
        self.drop()

    def drop(self) -> None:
        """Forget calls of a step that was broken off."""
        self._calls.clear()

    def log(self, index: int, step: int | None, values: Mapping[str, Any]) -> None:
        """A call to this logger, in a step. It counts when the step ends, and only that of rank 0.

        Outside of the elastic functions it is written at once, by the process that is rank 0 then."""
        numbers, each = self._numbers(index, values), self._logs[index]
        if self._session.runtime.state.entry.inside or each.found is None:
            self._calls.append((index, step, numbers))
        elif not self._session.catching_up:
            each.put_last(step, numbers)
            each.finish()

    def log_all(self, step: int, values: Mapping[str, Any]) -> None:
        """A call to all loggers."""
        for index in range(len(self._logs)):
            self.log(index, step, values)

    def calls(self) -> bytes:
        """The calls of the running step, to be given to all ranks; b"": there are none."""
        return json.dumps(self._calls).encode() if self._calls else b""

    def settle(self, calls: bytes) -> None:
        """A step is about to end in which rank 0 has made these calls. All ranks call it."""
        self._calls.clear()
        for index, step, values in json.loads(calls) if calls else ():
            self._logs[index].put(step, values)

    def completed(self) -> None:
        """A step has ended."""
        for each in self._logs:
            each.completed()

    def finish(self) -> None:
        """The training is over: write what is left, also of calls after its last step. On all ranks."""
        for index, step, values in self._calls:
            self._logs[index].put_last(step, values)
        self._calls.clear()
        for each in self._logs:
            each.finish()

    # ------------------------------------------------------------------ within

    def _gathered(self, own: Any) -> list[Any]:
        world, device = self._session.world_size, self._session.device
        return [json.loads(row) for row in gather(json.dumps(own).encode(), world, device)]

    def _numbers(self, index: int, values: Mapping[str, Any]) -> dict[str, Any]:
        numbers = {}
        for name, value in values.items():
            number = _number(value)
            if number is not None:
                numbers[str(name)] = number
            elif (index, name) not in self._told:
                self._told.add((index, name))
                log.warning(_LEFT_OUT, self._logs[index].run.name, name, value)
        return numbers


def _number(value: Any) -> float | None:
    """A value as plain number; None: it is none."""
    if isinstance(value, str):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
