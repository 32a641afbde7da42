"""StepLog in a session without an agent, and W&B's files."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from holdfast.errors import SessionError
from holdfast.holds import OF_FAILURES
from holdfast.integrations.step_log import StepLog
from holdfast.integrations.wandb_files import BLOCK_BYTES, RECORD, newest_step, records, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Lines:
    """A logger that writes into a list."""

    def __init__(self, lines: list[Any], step: int) -> None:
        self.lines = lines
        self.lines.append(("open", step))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.lines.append((step, dict(values)))

    def note(self, step: int, text: str) -> None:
        self.lines.append((step, text))

    def close(self, *, finished: bool) -> None:
        self.lines.append(("close", finished))


def train(body: Callable[[StepLog, int], object], *, tracked: bool = True) -> tuple[StepLog, list[Any]]:
    """Three steps; `body(log, step)` logs."""
    lines: list[Any] = []
    session = Session()
    log = StepLog(session, lambda step: Lines(lines, step), keep=2)
    session.track(weight=torch.nn.Linear(1, 1))
    if tracked:
        session.track(log=log)

    @session.elastic
    def run() -> None:
        for step in session.steps(3):
            body(log, step)

    run()
    return log, lines


def test_numbers_of_a_step_are_one_entry() -> None:
    def body(log: StepLog, step: int) -> None:
        log({"loss": step + 0.5})
        log({"rate": float(torch.tensor(0.25))})

    log, lines = train(body)
    assert log.finish()
    values = [(step, {"loss": step + 0.5, "rate": 0.25}) for step in range(3)]
    assert lines == [("open", 0), *values, ("close", True)]


def test_the_newest_entries_are_its_state_and_a_new_rank_0_goes_on_from_them() -> None:
    log, _ = train(lambda log, step: log({"loss": step}))
    assert log.finish()
    lines: list[Any] = []
    session = Session()
    other = StepLog(session, lambda step: Lines(lines, step), keep=2)
    other.load_state_dict(log.state_dict())
    assert other.state_dict() == log.state_dict()
    assert other.finish()
    assert lines == [("open", 1), (1, {"loss": 1.0}), (2, {"loss": 2.0}), ("close", True)]


def disturbed(generations: Mapping[int, int]) -> tuple[dict[str, Any], list[Any]]:
    """The state and the lines after five steps; at these steps these generations began."""
    lines: list[Any] = []
    session = Session()
    log = StepLog(session, lambda step: Lines(lines, step), keep=4)
    session.track(log=log)

    @session.elastic
    def run() -> None:
        for step in session.steps(5):
            session.runtime.state.generation = generations.get(step, session.generation)
            log({"loss": step})
            log({"rate": 0.5})

    run()
    assert log.finish()
    return log.state_dict(), lines


def test_failures_are_kept_apart_from_what_is_logged() -> None:
    (calm, _), (state, lines) = disturbed({0: 1}), disturbed({0: 1, 2: 2, 4: 3})
    assert state["lines"] == calm["lines"] and len(state["lines"].splitlines()) == 4
    assert json.loads(calm[OF_FAILURES]) == [[1, 1, ""]]
    began = json.loads(state[OF_FAILURES])
    assert [each[:2] for each in began] == [[1, 1], [2, 2], [4, 3]]
    assert "generation 3: 1 ranks went on at step 4" in began[2][2]
    found: list[Any] = []
    session = Session()
    other = StepLog(session, lambda step: Lines(found, step), keep=4)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert other.finish()
    assert found == [("open", 1), *lines[2:]], "notes are where they were"


def test_a_state_with_everything_in_its_lines_is_read() -> None:
    old = [[4, 1, {"loss": 4.0}, ""], [5, 2, {}, "generation 2: it went on"], [5, 2, {"loss": 5.0}, ""]]
    lines: list[Any] = []
    log = StepLog(Session(), lambda step: Lines(lines, step))
    log.load_state_dict({"lines": "\n".join(map(json.dumps, old))})
    assert log.finish()
    assert lines[1:-1] == [(4, {"loss": 4.0}), (5, "generation 2: it went on"), (5, {"loss": 5.0})]


def test_a_log_that_is_finished_twice_is_opened_anew_with_all_that_is_kept() -> None:
    log, lines = train(lambda log, step: log({"loss": step}))
    assert log.finish() and log.finish()
    first, second = lines[: lines.index(("close", True)) + 1], lines[lines.index(("close", True)) + 1 :]
    assert [line[0] for line in first] == ["open", 0, 1, 2, "close"]
    assert [line[0] for line in second] == ["open", 1, 2, "close"], "it drops, or knows, what it has"


def test_what_cannot_be_logged_is_refused() -> None:
    with pytest.raises(SessionError, match=r"StepLog: loss=\[1\] is not a number; give a float"):
        train(lambda log, _: log({"loss": [1]}))  # type: ignore[dict-item]
    with pytest.raises(SessionError, match=r"it is not tracked.*session.track\(log=log\)"):
        train(lambda log, _: log({"loss": 1.0}), tracked=False)
    log, _ = train(lambda *_: None)
    with pytest.raises(SessionError, match="call it in the body of a step"):
        log({"loss": 1.0})
    with pytest.raises(SessionError, match="not callable"):
        StepLog(Session(), "file")  # type: ignore[arg-type]
    with pytest.raises(SessionError, match="needed are 1 <= keep <= capacity"):
        StepLog(Session(), lambda step: Lines([], step), keep=5, capacity=4)


def test_records_of_wandbs_files_are_read_over_blocks_and_to_a_torn_end(tmp_path: Path) -> None:
    large = bytes(range(256)) * 160  # 40 KiB: over the end of a block
    head = BLOCK_BYTES - 7 - RECORD.size - 3 - RECORD.size
    data = b":W&B" + bytes(3) + struct.pack("<IHB", 0, 3, 1) + b"abc"
    data += struct.pack("<IHB", 0, head, 2) + large[:head]
    data += struct.pack("<IHB", 0, len(large) - head, 4) + large[head:]
    path = tmp_path / "run-a.wandb"
    path.write_bytes(data + struct.pack("<IHB", 0, 9, 1) + b"torn")
    assert list(records(path)) == [b"abc", large]
    path.write_bytes(b"nothing of W&B's")
    with pytest.raises(ValueError, match="not a file of W&B"):
        list(records(path))


def test_a_folder_without_runs_has_no_step(tmp_path: Path) -> None:
    assert newest_step(tmp_path, "job-1") == -1


def test_the_notes_of_all_folders_of_a_run_are_found(tmp_path: Path) -> None:
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    for number, run_id in enumerate(("job-1", "job-1", "job-2")):
        note = messages.Record()
        note.history.item.add(key="loss", value_json="0.5")
        note.history.item.add(nested_key=["holdfast"], value_json=json.dumps(f"note {number}\nmore"))
        content = note.SerializeToString()
        folder = tmp_path / f"offline-run-2026_{number}-{run_id}"
        folder.mkdir()
        framed = b":W&B" + bytes(3) + struct.pack("<IHB", 0, len(content), 1) + content
        (folder / f"run-{run_id}.wandb").write_bytes(framed)
    assert texts(tmp_path, "job-1", "holdfast") == {"note 0\nmore", "note 1\nmore"}
    assert texts(tmp_path, "job-1", "other") == set()
