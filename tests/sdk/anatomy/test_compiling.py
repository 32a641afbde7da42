"""What dynamo compiles within a step shows on the progress page as a phase: real compilations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo as dynamo

from holdfast.anatomy import compiling
from holdfast.anatomy.recorder import StepRecorder
from holdfast.ipc.progress_marks import ProgressMarks
from holdfast.ipc.progress_page import ACTIVITIES, ProgressPage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEP = ("step", 0)


class Marked:
    """The marks of a rank, and what its page showed whenever the backend was called."""

    def __init__(self, path: Path) -> None:
        self._page = ProgressPage.create(path)
        self.progress = ProgressMarks(self._page)
        self.seen: list[tuple[str, int]] = []
        self.fails = False

    def now(self) -> tuple[str, int]:
        return ACTIVITIES[self._page.activity], self._page.limit_ns

    def compile(self, size: int) -> None:
        """Compile something that was not compiled before."""
        torch.compile(lambda rows: rows * size, backend=self._backend)(torch.ones(size))

    def _backend(self, graph: torch.fx.GraphModule, _: object) -> Any:
        self.seen.append(self.now())
        if self.fails:
            raise RuntimeError("cannot compile")
        return graph.forward


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    dynamo.reset()
    yield Marked(tmp_path / "m.board")
    dynamo.reset()


@pytest.mark.parametrize("activity", ["first", "step"])
def test_a_compilation_within_a_step_is_a_phase(marked: Marked, activity: str) -> None:
    with compiling.declared(marked.progress, StepRecorder()):
        marked.progress.mark(activity)
        marked.compile(2)
        assert marked.now() == (activity, 0)
    assert marked.seen == [("compile", 0)]


def test_one_that_fails_ends_its_phase(marked: Marked) -> None:
    with compiling.declared(marked.progress, StepRecorder()):
        marked.progress.mark("step")
        marked.fails = True
        with pytest.raises(Exception, match="cannot compile"):
            marked.compile(3)
        assert marked.now() == STEP
    assert marked.seen == [("compile", 0)]


def test_what_the_script_has_declared_stays(marked: Marked) -> None:
    with compiling.declared(marked.progress, StepRecorder()):
        marked.progress.mark("step")
        with marked.progress.phase("evaluate", 7.0):
            marked.compile(4)
            assert marked.now() == ("evaluate", 7_000_000_000)
    assert marked.seen == [("evaluate", 7_000_000_000)]


def test_nothing_is_marked_where_a_rank_is_not_judged_nor_afterwards(marked: Marked) -> None:
    with compiling.declared(marked.progress, StepRecorder()):
        marked.progress.mark("none")
        marked.compile(5)
    marked.progress.mark("step")
    marked.compile(6)
    assert marked.seen == [("none", 0), STEP]


def test_callbacks_that_dynamo_has_forgotten_are_no_error(marked: Marked) -> None:
    with compiling.declared(marked.progress, StepRecorder()):
        marked.progress.mark("step")
        dynamo.reset()
        marked.compile(7)
    assert marked.seen == [STEP]
