"""The loggers of a trainer in a session without an agent: what their runs get, and another process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from holdfast.errors import SessionError
from holdfast.integrations.runs import STEP, Found, LoggerRun, local
from holdfast.integrations.runs.csv_file import CsvRun
from holdfast.integrations.runs.trainer_log import TrainerLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Listed(LoggerRun):
    """A run that is a list."""

    name = "a list"

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Any] = []
        self.made = 0

    def make(self) -> Found:
        """The job's first entry is number 3: the list has three of an older job."""
        self.made += 1
        return {"first": 3}

    def open(self, found: Found) -> Listed:
        """It has nothing to open."""
        return self

    def write(self, number: int, values: Mapping[str, float]) -> None:
        """Write an entry, unless it is there."""
        if number not in [line[0] for line in self.lines]:
            self.lines.append((number, dict(values)))

    def note(self, number: int, text: str) -> None:
        """Write a text."""
        self.lines.append((number, text))

    def close(self, *, finished: bool) -> None:
        """Close it."""
        self.lines.append(("close", finished))


def train(log: TrainerLog, session: Session, body: Callable[[int], object], steps: int = 3) -> None:
    """Steps as an integration has them; `body(step)` logs."""
    session.track(weight=torch.nn.Linear(1, 1))
    log.track()

    @session.elastic
    def run() -> None:
        session.restore()
        log.begin()
        while (step := session.begin_step(steps)) is not None:
            body(step)
            log.settle(log.calls())
            session.end_step()
            log.completed()

    run()


def test_each_call_is_an_entry_and_those_after_the_training_are_too() -> None:
    session, run = Session(), Listed()
    log = TrainerLog(session, [run])

    def body(step: int) -> None:
        log.log(0, 10 * step, {"loss": torch.tensor(0.5)})
        if step == 1:
            log.log_all(10, {"accuracy": 1})

    train(log, session, body)
    log.finish()
    log.log(0, None, {"last": 7})
    assert run.made == 1
    assert run.lines == [
        (3, {"loss": 0.5, STEP: 0}),
        (4, {"loss": 0.5, STEP: 10}),
        (5, {"accuracy": 1, STEP: 10}),
        (6, {"loss": 0.5, STEP: 20}),
        ("close", True),
        (7, {"last": 7, STEP: 7}),
        ("close", True),
    ], "at once: nobody has to finish it once more"


def test_calls_of_a_step_that_was_broken_off_are_forgotten() -> None:
    session, run = Session(), Listed()
    log = TrainerLog(session, [run])
    log.log(0, 0, {"loss": 1.0})
    log.drop()
    train(log, session, lambda step: log.log(0, step, {"loss": 2.0}), steps=1)
    log.finish()
    assert run.lines == [(3, {"loss": 2.0, STEP: 0}), ("close", True)]


def test_another_process_finds_the_run_and_has_the_newest_entries() -> None:
    session, run = Session(), Listed()
    log = TrainerLog(session, [run])
    train(log, session, lambda step: log.log(0, step, {"loss": step}))
    state = log._logs[0].state_dict()

    again, other = Session(), Listed()
    late = TrainerLog(again, [other])
    late._logs[0].load_state_dict(state)
    train(late, again, lambda step: late.log(0, 3 + step, {"loss": step}), steps=1)
    late.finish()
    assert other.made == 0
    assert [line[0] for line in other.lines] == [3, 4, 5, 6, "close"]


def test_what_is_no_number_is_told_once_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    session, run = Session(), Listed()
    log = TrainerLog(session, [run])
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train(log, session, lambda step: log.log(0, step, {"loss": 1.0, "words": "many"}), steps=2)
    log.finish()
    assert run.lines[0] == (3, {"loss": 1.0, STEP: 0})
    assert [record.getMessage() for record in caplog.records] == [
        "a list: 'words'='many' is not logged: under Holdfast only numbers are"
    ]


def test_other_loggers_than_before_are_refused() -> None:
    log = TrainerLog(Session(), [Listed()])
    log.renew([Listed()])
    with pytest.raises(SessionError, match="the script has made 1 loggers, and now makes 2"):
        log.renew([Listed(), Listed()])


def test_a_csv_file_gets_no_line_twice(tmp_path: Path) -> None:
    run = CsvRun(
        lambda: {"folder": str(tmp_path / "version_0")}, rename=lambda v: {f"a-{k}": v[k] for k in v}
    )
    (tmp_path / "version_0").mkdir()
    path = tmp_path / "version_0" / "metrics.csv"
    path.write_text("of another job\n")
    found = run.make()
    assert path.read_text() == ""
    first = run.open(found)
    first.write(0, {STEP: 0, "loss": 0.5})
    first.write(1, {STEP: 1, "loss": 0.25})
    first.write(2, {STEP: 1, "accuracy": 1.0})
    whole = path.read_text()
    assert whole.splitlines() == ["a-accuracy,a-loss,step", ",0.5,0", ",0.25,1", "1.0,,1"]
    path.write_text(whole.removesuffix(".0,,1\n"))  # as after a kill
    second = run.open(found)
    for number, values in enumerate(({"loss": 0.25}, {"accuracy": 1.0})):
        second.write(1 + number, {STEP: 1, **values})
    second.write(3, {STEP: 2, "loss": 0.125})
    assert path.read_text() == whole + ",0.125,2\n"


def test_a_folder_of_a_remote_storage_is_refused(tmp_path: Path) -> None:
    assert local(str(tmp_path), "TensorBoard") == tmp_path
    with pytest.raises(SessionError, match="TensorBoard under Holdfast: s3://logs is not supported: give a"):
        local("s3://logs", "TensorBoard")
