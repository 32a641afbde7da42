"""The judge of workloads: what it lets pass, and what it finds; and the plans of blows."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.workloads import judging
from tests.workloads.blows import IN_RECOVERY, PHASES, plan
from tests.workloads.running import planned_for
from tests.workloads.struck import BEGIN, END, run
from tests.workloads.table import SCRIPTS, WORKLOADS

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = judging.Told.of(
    {"rank": rank, "digests": {"model.weight": "aa", "n": "3"}, "shares": [[0, [rank]], [1, [rank + 2]]]}
    for rank in (0, 1)
)


def lines(*steps: tuple[int, int, int, list[int]], committed: bool = True) -> list[dict[str, object]]:
    """Of step, generation, rank and samples each."""
    found: list[dict[str, object]] = []
    for step, generation, rank, taken in steps:
        found.append(
            {"kind": "attempt", "step": step, "generation": generation, "rank": rank, "indices": taken}
        )
        if committed:
            found.append({"kind": "committed", "step": step, "generation": generation, "rank": rank})
    return found


WHOLE = lines((0, 1, 0, [0]), (0, 1, 1, [1]), (1, 1, 0, [2]), (1, 1, 1, [3]))


def told(**digests: str) -> judging.Told:
    return judging.Told.of({"rank": rank, "digests": digests, "shares": []} for rank in (0, 1))


def test_the_same_bits_and_samples_pass() -> None:
    assert judging.bits(PLAIN, told(**{"model.weight": "aa", "n": "3"})) == []
    assert judging.samples(PLAIN, WHOLE) == []
    assert judging.done_again(WHOLE) == 0


def test_another_bit_is_named() -> None:
    (first, second) = judging.bits(PLAIN, told(**{"model.weight": "ab", "n": "3"}))
    assert "rank 0" in first and "model.weight" in first and "rank 1" in second and "n" not in first.split()


def test_a_tensor_too_many_is_named() -> None:
    assert "extra" in judging.bits(PLAIN, told(**{"model.weight": "aa", "n": "3", "extra": "1"}))[0]


def test_a_rank_that_said_nothing_is_named() -> None:
    assert "rank 1 never said" in judging.bits(PLAIN, judging.Told({0: PLAIN.digests[0]}, {}))[0]


def test_other_samples_are_found() -> None:
    assert "step 1, rank 0" in judging.samples(PLAIN, [*WHOLE[:4], *lines((1, 1, 0, [9]), (1, 1, 1, [3]))])[0]


def test_other_samples_in_a_second_run_of_a_step_are_found() -> None:
    assert judging.samples(PLAIN, [*WHOLE, *lines((1, 2, 0, [2]), (1, 2, 1, [9]))])


def test_the_same_samples_in_a_second_run_of_a_step_pass_and_are_counted() -> None:
    again = [*WHOLE, *lines((1, 2, 0, [2]), (1, 2, 1, [3]))]
    assert judging.samples(PLAIN, again) == []
    assert judging.done_again(again) == 1


def test_what_was_attempted_and_never_completed_does_not_count() -> None:
    assert judging.samples(PLAIN, [*WHOLE, *lines((1, 2, 0, [9]), committed=False)]) == []


def test_a_step_without_a_rank_is_found() -> None:
    assert "without ranks {1}" in judging.samples(PLAIN, WHOLE[:-2])[0]


def test_a_step_that_some_ranks_completed_alone_passes_when_all_complete_it_later() -> None:
    again = [*WHOLE[:-2], *lines((1, 2, 0, [2]), (1, 2, 1, [3]))]
    assert judging.samples(PLAIN, again) == []
    assert judging.done_again(again) == 0


def test_what_each_recovery_costs_is_counted_in_steps_that_all_had_completed() -> None:
    ahead = lines((2, 1, 0, [4]))  # one rank had completed it: it is no step that all had
    again = lines((1, 2, 0, [2]), (1, 2, 1, [3]), (2, 2, 0, [4]), (2, 2, 1, [5]))
    once_more = lines((3, 3, 0, [6]), (3, 3, 1, [7]))
    assert judging.lost_by_recovery(WHOLE) == {}
    assert judging.lost_by_recovery([*WHOLE, *ahead, *again]) == {2: 1}
    assert judging.lost_by_recovery([*WHOLE, *ahead, *again, *once_more]) == {2: 1, 3: 0}


def test_what_a_recovery_costs_is_told_by_the_phases_of_the_kills_before_it() -> None:
    fallen = [
        {"phase": phase, "generation": generation}
        for phase, generation in [
            ("forward", 1),
            ("snapshot", 2),
            ("restore", 3),
            ("forward", 5),
            ("tail", 9),
        ]
    ]
    assert judging.lost_by_phase({2: 1, 5: 0, 6: 1, 9: 3}, fallen) == {
        "forward": {1: 2},
        "none": {3: 1},  # generation 9 began without a kill
        "snapshot+restore": {0: 1},
    }


def test_a_step_that_a_rank_completed_alone_in_the_end_is_found() -> None:
    assert "without ranks {1}" in judging.samples(PLAIN, [*WHOLE, *lines((1, 2, 0, [2]))])[0]


def test_a_call_after_a_step_that_never_came_is_named() -> None:
    calls = judging.calls({(0, 0), (0, 1), (1, 0)}, {(0, 0), (1, 0), (1, 7)})
    assert calls == ["rank 0: nothing was called after step 1", "rank 1: was called after step 7"]


def test_steps_of_a_second_training_are_those_behind_a_gap() -> None:
    later = lines((0, 1, 0, [0]), (0, 1, 1, [1]), (2, 1, 0, [2]), (2, 1, 1, [3]))
    assert judging.samples(PLAIN, later) == []


def test_a_step_never_completed_is_found() -> None:
    assert "step 1" in judging.samples(PLAIN, WHOLE[:4])[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_strikes_every_phase_before_any_comes_again(seed: int) -> None:
    blows = plan("any", seed, 2 * len(PHASES), 4, 1, 24)
    first = Counter(blow.phase for blow in blows[: len(PHASES)])
    assert set(first) == set(PHASES) and len(blows) == 2 * len(PHASES)
    assert blows[0].phase not in IN_RECOVERY
    assert [blow.at for blow in blows] == sorted(blow.at for blow in blows)
    assert all(0 < blow.step < 22 and 0 <= blow.rank < 4 for blow in blows)


def test_plans_depend_on_seed_and_name_alone() -> None:
    assert plan("a", 1, 8, 4, 1, 24) == plan("a", 1, 8, 4, 1, 24) != plan("b", 1, 8, 4, 1, 24)


def test_few_kills_of_all_workloads_reach_every_phase() -> None:
    killed = [(seed, each) for seed, each in enumerate(WORKLOADS) if not each.refused and not each.gpu]
    plans = [planned_for(each, 2, seed) for seed, each in killed]
    assert {blow.phase for blows in plans for blow in blows} == set(PHASES)


def test_marks_stand_before_each_statement_of_the_training_loop(folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(
        "class Session:\n"
        "    def steps(self, n): return range(n)\n"
        "def train(task):\n"
        "    for at in Session().steps(2):\n"
        "        a = 1\n"
        "        if at:\n"
        "            b = 2\n"
        "train(7)\n"
    )
    seen: list[tuple[str, int, int]] = []
    run(script, lambda text, task, step: seen.append((text, task, step)))
    inside = [(BEGIN, 7, 0), ("a = 1", 7, 0), ("if at:", 7, 0), (END, 7, 0)]
    assert seen[:4] == inside and ("b = 2", 7, 1) in seen and len(seen) == 9


def test_every_script_has_a_row_and_says_what_it_loses() -> None:
    scripts = {path for path in SCRIPTS.rglob("*.py") if path.name != "material.py"}
    assert scripts == {workload.path for workload in WORKLOADS}
    for path in scripts:
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert "Loses " in said or said.startswith("Refused: "), path.name
        assert path.read_text().count("\n") <= 120, path.name
