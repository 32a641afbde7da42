"""Which lines of a journal are about this run, and which of several tracebacks is shown at its end."""

from __future__ import annotations

from controlplane.cli.orders.follow import Since, ended_by
from controlplane.core.state.job import REASON_MAX, shortened

RANKS = 'Traceback (most recent call last):\n  File "a.py", line 1, in train\nSessionError: no group'
SPARES = RANKS.replace("train", "<module>")
LONG = "Traceback (most recent call last):\n" + "  deep\n" * REASON_MAX + "RecursionError: deep"


def test_it_is_the_one_that_ended_the_job_whoever_else_raised_at_that_moment() -> None:
    assert ended_by(f"stop: no group\n{RANKS}", [RANKS, SPARES]) == RANKS
    assert ended_by(f"stop: no group\n{RANKS}", [SPARES, RANKS]) == RANKS


def test_of_a_reason_that_was_shortened_it_is_the_whole_one() -> None:
    assert ended_by(shortened(f"stop\n{LONG}"), [RANKS, LONG, SPARES]) == LONG


def test_a_reason_without_a_traceback_gets_the_newest_one() -> None:
    assert ended_by("stopped by hand", [RANKS, SPARES]) == SPARES
    assert ended_by("stopped by hand", []) == ""


def test_a_reason_with_a_traceback_that_the_journal_lacks_gets_no_other() -> None:
    assert ended_by(f"stop\n{RANKS}", [LONG]) == ""


def test_a_clock_that_is_set_back_hides_no_line_of_this_run() -> None:
    begun = Since(100.0)
    assert [begun({"wall_s": at}) for at in (40.0, 99.9, 100.0, 101.0, 40.0, 41.0)] == [False] * 2 + [
        True
    ] * 4
