"""What a rank's board shows of its progress while a script loops over steps more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Session
from holdfast.ipc.progress_page import ACTIVITIES, ProgressPage

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_first_step_of_another_loop_is_judged_as_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as what comes after a loop, which may take an hour: an epoch's first step is where loaders hang."""
    board = ProgressPage.create(tmp_path / "m.board")
    monkeypatch.setenv("HOLDFAST_BOARD", str(tmp_path / "m.board"))
    session, seen = Session(), list[tuple[int, str]]()

    def look(step: int) -> None:
        seen.append((step, ACTIVITIES[board.activity]))

    @session.elastic
    def train() -> None:
        for epoch in (1, 2):
            for step in session.steps(2 * epoch):
                look(step)
            look(-1)

    train()
    session.close()
    board.close()
    assert [activity for step, activity in seen if step == -1] == ["after", "after"]
    assert [activity for step, activity in seen if step in (1, 2, 3)] == ["step", "step", "step"]
