"""The judge of the trainers' own loggers; and their runs, with the libraries, where these are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import SessionError
from holdfast.integrations.runs import STEP
from tests.frameworks import log_readers
from tests.frameworks.log_readers import Log
from tests.frameworks.trainer_logs import differences

if TYPE_CHECKING:
    from pathlib import Path

POINTS = [(1, 0.5), (2, 0.25), (2, 0.125)]


@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_tensorboard_gets_no_entry_twice(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from holdfast.integrations.runs.tensorboard import TensorBoardRun

    run = TensorBoardRun(lambda: {"folder": str(tmp_path)})
    for job in range(2):  # the second one is told to use the same folder
        found = run.make()
        assert found["first"] == 2 * job
        for _ in range(2):  # another process begins where it may not have been written
            writer = run.open(found)
            writer.write(2 * job, {STEP: 7, "loss": 0.5})
            writer.write(2 * job + 1, {STEP: 8, "loss": 0.25})
            writer.close(finished=False)
    assert log_readers.tensorboard(tmp_path).points == [(7, 0.5), (8, 0.25), (7, 0.5), (8, 0.25)]


def test_what_loggers_of_lightning_cannot_do_is_refused(tmp_path: Path) -> None:
    loggers: Any = pytest.importorskip("lightning.pytorch.loggers")
    from holdfast.integrations.lightning.loggers import run_of

    with pytest.raises(SessionError, match=r"WandbLogger\(log_model=...\) under Holdfast is not supported"):
        run_of(loggers.WandbLogger(log_model="all"))

    class Own(loggers.CSVLogger):  # type: ignore[misc]
        """It may do anything."""

    assert run_of(Own(str(tmp_path))) is None
    assert run_of(loggers.CSVLogger(str(tmp_path))) is not None


def test_points_are_compared_each_as_often_as_in_the_undisturbed_log() -> None:
    assert differences("loss", Log(POINTS, []), Log(POINTS, [])) == []
    assert differences("loss", Log(POINTS, []), Log([*POINTS[:2], (1, 0.5)], [], {}, ["2 runs"])) == [
        "2 runs",
        "loss: steps missing: [2]",
        "loss: steps too often: [1]",
        "loss: other values in steps [2]",
    ]
    assert differences("loss", Log([], []), Log([], [], {"status": "RUNNING"})) == [
        "loss: nothing was logged",
        "the run ended as RUNNING",
    ]
