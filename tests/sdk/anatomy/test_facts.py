"""What a rank knows of its work and memory lies on its page, and what the script declares is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.anatomy import declaring
from holdfast.anatomy.facts import FactsWriter
from holdfast.anatomy.memory import used
from holdfast.anatomy.recorder import StepRecorder
from holdfast.errors import SessionError
from holdfast.ipc.progress_marks import ProgressMarks
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.rank_facts import NOTES, RankFacts, RankFactsPage
from holdfast.ipc.step_times import StepTimesPage

if TYPE_CHECKING:
    from pathlib import Path


class Rank:
    """A recorder with a real page, and a model of 12 parameters."""

    def __init__(self, folder: Path) -> None:
        page = ProgressPage.create(folder / "page")
        self.facts, self.progress = RankFactsPage(page), ProgressMarks(page)
        model = torch.nn.Linear(3, 3)
        writer = FactsWriter(self.facts, lambda: [model])
        self.times = StepRecorder(StepTimesPage(page), memory=used, facts=writer)

    def step(self) -> RankFacts:
        """Run one step of a loop, and read what is known after it."""
        self.times.begin()
        with declaring.phase(self.progress, self.times, "compile", None):
            sum(range(1000))
        self.times.complete(0, 1, 0)
        self.times.stop()
        found = self.facts.read()
        assert found is not None
        return found


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_nothing_is_known_before_the_first_step(rank: Rank) -> None:
    assert rank.facts.read() is None


def test_a_step_tells_what_can_be_known(rank: Rank) -> None:
    found = rank.step()
    assert (found.token_flops, found.peak_flops) == (0, 0)
    assert "CPU" in NOTES[found.note]
    assert found.memory_limit_bytes > 0 and found.ran_ns > 0 and found.at_ns > 0
    assert found.compile_ns > 0 and found.evaluate_ns == 0


def test_what_is_declared_counts_from_the_next_look_on(rank: Rank) -> None:
    rank.step()
    declaring.declare_compute(rank.times, {"layers": 1, "hidden": 2, "sequence": 5, "peak_flops": 1e12})
    rank.times._memory_due = 0
    found = rank.step()
    assert (found.token_flops, found.peak_flops) == (6 * 12 + 12 * 10, 10**12)
    assert NOTES[found.note] == "counted"


@pytest.mark.parametrize(
    "wrong",
    [{"layers": -1}, {"hidden": 1.5}, {"sequence": True}, {"parameters": 10**16}, {"peak_flops": 0},
     {"peak_flops": float("nan")}, {"peak_flops": float("inf")}, {"dtype": "bfloat17"}, {"heads": 4}],
)  # fmt: skip
def test_impossible_numbers_are_refused_by_name(rank: Rank, wrong: dict[str, Any]) -> None:
    with pytest.raises(SessionError, match=next(iter(wrong))):
        declaring.declare_compute(rank.times, wrong)  # type: ignore[arg-type]


def test_without_a_page_nothing_is_kept() -> None:
    declaring.declare_compute(StepRecorder(), {"layers": 1})
