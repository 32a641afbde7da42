"""A job that could start with fewer nodes waits for a node that is being checked, while a check may take."""

from __future__ import annotations

from controlplane.core.records.model import JobPhase
from tests.core.failures.test_node_checks import WRONG, Checked, seats, stage

GRACE_S, TIMEOUT_S = 10, 120
"""The defaults of `join_grace_s` and `check_timeout_s`."""


def waiting() -> Checked:
    """A job that waits with node a there and node b being checked, longer than for nodes not yet there."""
    made = stage("a")
    made.silent = {"b"}
    made.do("hello b", "submit nodes=1 most=2", f"live {3 * GRACE_S}")
    job = made.cluster.state.jobs["j"]
    assert job.phase is JobPhase.PENDING and job.generation is None
    assert job.reason.endswith("up to 2; not to be used: b (it is being checked: it is new here)")
    return made


def test_it_starts_with_the_node_once_that_is_found_in_order() -> None:
    made = waiting()
    made.silent = set()
    made.answer()
    made.do("stored")
    assert sorted(seats(made)) == ["a", "b"]


def test_it_starts_without_the_node_that_failed_and_says_why() -> None:
    made = waiting()
    made.found["b"], made.silent = WRONG, set()
    told = made.answer()
    made.do("stored")
    assert seats(made) == ["a"]
    assert [line for line in told if f"not to be used: b (its check found: cpu.gemm.float32: {WRONG}" in line]


def test_a_check_that_never_ends_does_not_keep_it() -> None:
    made = waiting()
    made.do(f"live {TIMEOUT_S}", "stored")
    assert sorted(seats(made)) == ["a", "b"]
    assert made.standing("b") == ("ok", "")
