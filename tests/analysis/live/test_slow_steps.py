"""The leader keeps the newest slow steps of a job, rank by rank, in memory that does not grow."""

from __future__ import annotations

import tracemalloc

from controlplane.analysis.live.readings import PHASES, JobWindow, SlowRow
from controlplane.analysis.live.slow_steps import ROW_BYTES, ROWS_MAX, STEPS_MAX, SlowStepMemory
from controlplane.analysis.live.table import columns_of


def row(rank: int, step: int, data_s: float = 0.1, wait_s: float = 0.5, generation: int = 1) -> SlowRow:
    """A rank that works 0.4 s in a step of 1 s in which it waits."""
    spent = dict.fromkeys(PHASES, 0.0) | {"data": data_s, "communication": wait_s, "forward": 0.4}
    spent_s = tuple(spent[name] for name in PHASES)
    return SlowRow(rank, f"n{rank // 8}", generation, step, 0.5, sum(spent_s), spent_s)


def taken(*windows: tuple[SlowRow, ...], ranks: int = 4, more: int = 0) -> SlowStepMemory:
    memory = SlowStepMemory()
    for number, rows in enumerate(windows):
        memory.take(
            JobWindow(
                "j", 1, 5.0 * number, 5.0 * number + 5, columns_of([]), ranks, slow=rows, slow_more=more
            )
        )
    return memory


def test_ranks_of_one_step_come_together_and_the_newest_step_first() -> None:
    memory = taken((row(0, 7), row(1, 7)), (row(2, 7), row(0, 9)), more=2)
    found = memory.rows()
    assert [(each["step"], each["ranks_known"]) for each in found["steps"]] == [(9, 1), (7, 3)]
    assert found["more"] == 4
    head = found["steps"][1]
    assert (head["seen_s"], head["wall_s"], head["usual_s"], head["ranks_expected"]) == (5.0, 1.0, 0.5, 4)


def test_a_step_names_the_rank_for_which_the_others_waited() -> None:
    rows = tuple(
        row(rank, 7, data_s=0.6 if rank == 2 else 0.1, wait_s=0.0 if rank == 2 else 0.5) for rank in range(4)
    )
    found = taken(rows).step(1, 7, 64)
    assert found is not None
    assert (found["typical_rank"], found["slowest_rank"]) == (1, 2)
    slowest = found["ranks"][2]
    assert (slowest["rank"], slowest["node"], slowest["step_s"]) == (2, "n0", 1.0)
    assert slowest["shares"] == dict.fromkeys(PHASES, 0.0) | {"data": 0.6, "forward": 0.4}
    assert found["columns"] == {"ranks": [0, 1, 2, 3]}
    assert taken(rows).step(1, 8, 64) is None and taken(rows).step(2, 7, 64) is None


def test_a_step_that_runs_again_is_another_one() -> None:
    memory = taken((row(0, 7), row(0, 7, generation=2)))
    assert [(each["generation"], each["step"]) for each in memory.rows()["steps"]] == [(2, 7), (1, 7)]


def test_of_many_ranks_those_that_differ_most_are_shown() -> None:
    rows = tuple(row(rank, 7) for rank in range(1000))
    found = taken(rows, ranks=1000).step(1, 7, 10)
    assert found is not None and 10 <= len(found["ranks"]) <= 12 and len(found["columns"]["ranks"]) == 1000


def test_what_is_kept_is_bounded_in_steps_rows_and_bytes() -> None:
    memory = taken(*((row(0, step),) for step in range(STEPS_MAX + 5)))
    assert [each["step"] for each in memory.rows()["steps"]] == list(range(STEPS_MAX + 4, 4, -1))
    rows = [tuple(row(rank, step) for rank in range(5000)) for step in range(8)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    memory = taken(*rows, ranks=5000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(each["ranks_known"] for each in memory.rows()["steps"]) == ROWS_MAX
    assert after - before < ROWS_MAX * ROW_BYTES


def test_a_single_step_of_a_job_that_is_too_large_is_kept_whole() -> None:
    memory = taken(tuple(row(rank, 7) for rank in range(ROWS_MAX + 10)), ranks=ROWS_MAX + 10)
    assert memory.rows()["steps"][0]["ranks_known"] == ROWS_MAX + 10
