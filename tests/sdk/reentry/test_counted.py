"""A loop over steps that has nothing left to do is refused: steps are counted through the whole function."""

from __future__ import annotations

import pytest
import torch

from holdfast import Session, SessionError


def trained(*totals: int) -> list[int]:
    """The steps of a function with a loop for each of these totals."""
    session = Session()
    model = torch.nn.Linear(2, 1)
    session.track(model=model)
    done: list[int] = []

    @session.elastic
    def train() -> None:
        for total in totals:
            done.extend(session.steps(total))

    train()
    session.close()
    return done


def test_loops_may_count_on() -> None:
    assert trained(2, 5) == [0, 1, 2, 3, 4]
    assert trained(0, 0) == []


def test_a_loop_in_each_epoch_is_refused() -> None:
    with pytest.raises(SessionError, match=r"steps\(3\): the loop before this one has counted to 3"):
        trained(3, 3)


def test_another_loop_behind_one_that_was_left_is_told(caplog: pytest.LogCaptureFixture) -> None:
    session = Session()
    session.track(model=torch.nn.Linear(2, 1))

    @session.elastic
    def train() -> None:
        for step in session.steps(4):
            if step == 1:
                break
        list(session.steps(6))

    train()
    session.close()
    assert "steps(6): the loop before this one, over steps(4), was left at step" in caplog.text


def test_a_loop_that_was_left_may_be_gone_on_with(caplog: pytest.LogCaptureFixture) -> None:
    session = Session()
    session.track(model=torch.nn.Linear(2, 1))
    done: list[int] = []

    @session.elastic
    def train() -> None:
        for step in session.steps(4):
            done.append(step)
            if step == 1:
                break
        done.extend(session.steps(4))

    train()
    session.close()
    assert sorted(set(done)) == [0, 1, 2, 3] and not caplog.text
