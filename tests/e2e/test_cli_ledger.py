"""The judge of samples: what it lets pass, and what it calls repeated or skipped."""

from __future__ import annotations

import json

import pytest

from controlplane.cli.demo.ledger import LedgerError, judge, read


def attempt(step: int, rank: int, indices: list[int], generation: int = 1) -> str:
    return json.dumps(
        {
            "kind": "attempt",
            "step": step,
            "generation": generation,
            "rank": rank,
            "world_size": 2,
            "total": 4,
            "indices": indices,
        }
    )


def committed(step: int, rank: int, t_ns: int, generation: int = 1) -> str:
    return json.dumps(
        {"kind": "committed", "step": step, "generation": generation, "rank": rank, "t_ns": t_ns}
    )


def whole_step(step: int, generation: int = 1, first: int | None = None, data: int = 100) -> list[str]:
    """Both ranks of a step of four samples."""
    base = 4 * step if first is None else first
    shares = [[base % data, (base + 1) % data], [(base + 2) % data, (base + 3) % data]]
    lines = [attempt(step, rank, shares[rank], generation) for rank in (0, 1)]
    return lines + [
        committed(step, rank, 1000 * step + 10 * generation + rank, generation) for rank in (0, 1)
    ]


def test_undisturbed_run_is_clean() -> None:
    samples = judge(read({"a": [line for step in range(5) for line in whole_step(step)]}), 5)
    assert (samples.consumed, samples.repeated, samples.skipped) == (20, 0, 0)
    assert samples.clean


def test_a_step_tried_twice_counts_once() -> None:
    broken = [attempt(1, 0, [4, 5]), attempt(1, 1, [6, 7])]  # a rank died before anyone committed
    lines = whole_step(0) + broken + whole_step(1, generation=2)
    assert judge(read({"a": lines}), 2).clean


def test_steps_rolled_back_and_done_again_alike_are_clean() -> None:
    lines = whole_step(0) + whole_step(1) + whole_step(1, generation=2) + whole_step(2, generation=2)
    samples = judge(read({"a": lines}), 3)
    assert samples.clean and samples.consumed == 12


def test_done_again_with_other_samples_is_a_problem() -> None:
    samples = judge(read({"a": whole_step(0) + whole_step(0, generation=2, first=40)}), 1)
    assert not samples.clean
    assert "generation 2" in samples.problems[0]


def test_repeated_sample_is_counted() -> None:
    lines = whole_step(0) + whole_step(1, first=3) + whole_step(2)
    assert judge(read({"a": lines}), 3).repeated == 1


def test_missing_share_is_skipped() -> None:
    lines = [*whole_step(0), attempt(1, 0, [4, 5]), committed(1, 0, 5000)]
    samples = judge(read({"a": lines}), 2)
    assert samples.skipped == 2
    assert "has no samples recorded for" in samples.problems[0]


def test_step_never_committed_is_skipped() -> None:
    samples = judge(read({"a": whole_step(0)}), 2)
    assert samples.skipped == 4 and "never committed" in samples.problems[0]


def test_samples_of_the_reference_are_expected() -> None:
    reference = read({"a": whole_step(0) + whole_step(1)})
    samples = judge(read({"a": whole_step(0) + whole_step(1, first=50)}), 2, reference)
    assert (samples.repeated, samples.skipped) == (4, 4)


def test_second_pass_over_the_data_is_no_repetition() -> None:
    lines = [line for step in range(4) for line in whole_step(step, data=8)]
    samples = judge(read({"a": lines}), 4)
    assert samples.clean and samples.consumed == 16


def test_ranks_lines_come_in_any_file_order() -> None:
    lines = whole_step(0) + whole_step(1)
    assert judge(read({"b": lines[::2], "a": lines[1::2]}), 2).clean


def test_garbage_names_file_and_line() -> None:
    with pytest.raises(LedgerError, match=r"m\.1, line 2"):
        read({"m.1": [attempt(0, 0, [1]), "{}"]})
