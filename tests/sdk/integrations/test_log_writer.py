"""The thread that writes to a logger: order, going back, a logger that is down, and what is said of it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from holdfast.integrations.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest


class Shelf:
    """Loggers that write into one list, and fail while they are told to."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.down = False
        self.let_through = threading.Event()
        self.let_through.set()

    def open(self, step: int) -> Shelf:
        self._answer(("open", step))
        return self

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.let_through.wait()
        self._answer((step, dict(values)))

    def note(self, step: int, text: str) -> None:
        self._answer((step, text))

    def close(self, *, finished: bool) -> None:
        self._answer(("close", finished))

    def _answer(self, line: Any) -> None:
        if self.down:
            raise ConnectionError("nobody there")
        self.lines.append(line)


def entry(step: int, generation: int = 1, note: str = "") -> Entry:
    return Entry(step, generation, {} if note else {"loss": step / 2}, note)


def written(lines: list[Any]) -> list[int]:
    return [line[0] for line in lines if isinstance(line[1], dict)]


def test_entries_are_written_in_order_and_the_logger_is_finished() -> None:
    shelf = Shelf()
    writer = LogWriter(shelf.open, 10)
    writer.put([entry(3), entry(4, note="a note"), entry(4)])
    assert writer.finish(9, 60)
    values = [(3, {"loss": 1.5}), (4, "a note"), (4, {"loss": 2.0})]
    assert shelf.lines == [("open", 3), *values, ("close", True)]


def test_a_log_without_entries_is_opened_and_finished() -> None:
    shelf = Shelf()
    assert LogWriter(shelf.open, 10).finish(9, 60)
    assert shelf.lines == [("open", 9), ("close", True)]


def test_steps_that_run_again_replace_those_that_wait_and_reopen_the_logger() -> None:
    shelf = Shelf()
    writer = LogWriter(shelf.open, 10)
    shelf.let_through.clear()
    writer.put([entry(step) for step in (1, 2, 3)])
    writer.put([entry(2, 2), entry(3, 2)])
    shelf.let_through.set()
    assert writer.finish(9, 60)
    assert shelf.lines[-3:] == [(2, {"loss": 1.0}), (3, {"loss": 1.5}), ("close", True)]
    assert written(shelf.lines) == [1, 2, 3]

    writer.put([entry(4, 2), entry(5, 2)])
    assert writer.finish(9, 60)
    writer.put([entry(6, 2)])
    while writer.waiting:
        threading.Event().wait(0.001)
    writer.put([entry(6, 3)])
    assert writer.finish(9, 60)
    assert shelf.lines[-6:] == [
        ("open", 6),
        (6, {"loss": 3.0}),
        ("close", False),
        ("open", 6),
        (6, {"loss": 3.0}),
        ("close", True),
    ]


def test_a_logger_that_is_down_costs_nothing_but_what_is_dropped_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf, caplog.handler.level = Shelf(), logging.WARNING
    shelf.down = True
    writer = LogWriter(shelf.open, 5)
    for step in range(20):
        writer.put([entry(step)])
    assert writer.waiting == 5
    while not any(record.getMessage().startswith("the logger fails") for record in caplog.records):
        threading.Event().wait(0.001)  # on a busy machine its thread may not have run yet
    assert not writer.finish(20, 0.5)
    shelf.down = False
    assert writer.finish(20, 60)
    assert shelf.lines[0] == ("open", 15)
    at, text = shelf.lines[1]
    assert at == 15
    assert text.startswith("15 entries of steps 0 to 14 are missing: the logger failed: ConnectionError")
    assert written(shelf.lines) == [15, 16, 17, 18, 19]
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("the logger fails; entries wait") for line in said), said
    assert any(line.startswith("5 entries wait for the logger; dropped: the oldest") for line in said), said
    assert any("not finished in 0.5 s, 5 entries are not in it: ConnectionError" in line for line in said), (
        said
    )
    assert any("15 entries of steps 0 to 14 are missing" in line for line in said), said


def test_after_a_move_nothing_more_is_written() -> None:
    shelf = Shelf()
    writer = LogWriter(shelf.open, 10)
    shelf.let_through.clear()
    writer.put([entry(1), entry(2)])
    while not shelf.lines:
        threading.Event().wait(0.001)
    writer.leave()
    shelf.let_through.set()
    while ("close", False) not in shelf.lines:
        threading.Event().wait(0.001)
    assert shelf.lines == [("open", 1), (1, {"loss": 0.5}), ("close", False)]
