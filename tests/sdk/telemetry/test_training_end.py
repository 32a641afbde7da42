"""At which step the training ends lies on the rank's page as far as the script says it, and never a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from holdfast.errors import SessionError
from holdfast.integrations.own_loop import LoopMemory, OwnLoop
from holdfast.ipc.pages import training_end
from holdfast.ipc.progress_page import ProgressPage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressPage:
    found = ProgressPage.create(tmp_path / "page")
    monkeypatch.setenv("HOLDFAST_BOARD", str(tmp_path / "page"))
    return found


def session(**given: Any) -> Session:
    found = Session(**given)
    found.track(model=torch.nn.Linear(2, 2))
    return found


def run(own: Session, *bodies: Callable[[], object]) -> None:
    """Call each body as an elastic function of its own."""
    for body in bodies:
        own.elastic(body)()


def seen_in(own: Session, page: ProgressPage, total: int) -> Callable[[], list[tuple[str, int]]]:
    """A function with one loop of so many steps; what stands on the page in each goes to `notes`."""

    def body() -> list[tuple[str, int]]:
        return [training_end.read(page) for _ in own.steps(total)]

    return body


def test_an_older_sdk_writes_nothing_and_a_newer_one_more_than_is_known(page: ProgressPage) -> None:
    assert training_end.read(page) == ("older SDK", 0)
    page.ends = 7 << 4 | 15
    assert training_end.read(page) == ("newer SDK", 0)
    page.ends = (1 << 54) << 4 | 1
    assert training_end.read(page) == ("newer SDK", 0)
    training_end.write(page, training_end.JOB, 1 << 60)
    assert training_end.read(page) == ("job", 1 << 53)


def test_the_only_loop_ends_the_training(page: ProgressPage) -> None:
    own = session()
    assert training_end.read(page) == ("none", 0)
    assert own.elastic(seen_in(own, page, 3))() == [("loop", 3)] * 3


def test_a_second_function_or_loop_shows_that_no_loop_ends_the_job(page: ProgressPage) -> None:
    own = session()
    assert own.elastic(seen_in(own, page, 2))() == [("loop", 2)] * 2
    assert own.elastic(seen_in(own, page, 2))() == [("several", 0)] * 2

    another = session()
    notes = []

    def epochs() -> None:
        for epoch in range(3):
            notes.extend([training_end.read(page) for _ in another.steps(2 * (epoch + 1))])

    run(another, epochs)
    assert notes == [("loop", 2)] * 2 + [("several", 0)] * 4


def test_a_total_of_the_job_counts_over_all_functions(page: ProgressPage) -> None:
    own = session(total_steps=5)
    assert own.elastic(seen_in(own, page, 3))() == [("job", 5)] * 3
    base = own.runtime.state.functions.base
    assert own.elastic(seen_in(own, page, 2))() == [("job", base + 2)] * 2


def test_a_loop_beyond_the_named_total_is_told(page: ProgressPage) -> None:
    own = session(total_steps=2)
    assert own.elastic(seen_in(own, page, 3))() == [("beyond", 0)] * 3


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "9"])
def test_a_total_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(SessionError, match="total_steps"):
        Session(total_steps=wrong)


def test_a_loop_without_end_is_known_as_such(page: ProgressPage) -> None:
    own = session()

    def body() -> tuple[str, int]:
        assert own.begin_step(1 << 40) == 0
        own.end_step()
        return training_end.read(page)

    assert own.elastic(body)() == ("open", 0)


def own_loop(page: ProgressPage, total: int, batches: float, every: int = 1) -> list[tuple[str, int]]:
    """A script's own loop over epochs of four batches, whose optimizer steps at every so-manieth."""
    own = Session()
    loop = OwnLoop(own, LoopMemory(), "a loop", "track it", "track it")
    own.track(model=torch.nn.Linear(2, 2), loop=loop.progress)
    notes = []

    @own.elastic
    def train() -> None:
        for _epoch in loop.epochs(total, batches):
            for batch in loop.batches(lambda _epoch, position: iter(range(position, 4))):
                notes.append(training_end.read(page))
                if batch % every == every - 1:
                    loop.moved()
        loop.finish()

    train()
    return notes


def test_a_loop_of_the_script_ends_after_all_batches_of_its_epochs(page: ProgressPage) -> None:
    notes = own_loop(page, total=3, batches=4)
    assert notes[:2] == [("open", 0), ("trainer", 12)], "the first batch says how many steps one has"
    assert {kind for kind, _ in notes[1:]} == {"trainer"}
    assert [step for _, step in notes[4:]] == [15, 15, 14, 14, 15, 15, 15, 15], "one more for each epoch"


def test_steps_of_two_batches_are_half_as_many(page: ProgressPage) -> None:
    notes = own_loop(page, total=3, batches=4, every=2)
    assert notes[2] == ("trainer", 6) and notes[-1] == ("trainer", 9)


def test_a_loader_without_a_length_says_no_end(page: ProgressPage) -> None:
    assert set(own_loop(page, total=3, batches=float("inf"))) == {("open", 0)}
