"""Which data is left out, and which states are trusted after a fault."""

from __future__ import annotations

import random

from controlplane.core.failures import numeric_anomalies
from controlplane.core.records.copies import Copy
from controlplane.core.records.model import Fault, Generation, JobPhase, JobSpec, Resume, Tier, Window
from controlplane.core.state.job import Job
from holdfast.state import functions
from tests.core.test_cluster import running


def job(window: int, *faults: Fault, skips: tuple[Window, ...] = ()) -> Job:
    resume = Resume(Tier.FRESH, 0)
    made = Job(JobSpec("j", ("t.py",), "/", nan_skip_window=window))
    made.generation = Generation("j", 4, 1, (), "h:1", "", resume, "")
    made.numbers.faults, made.numbers.skips = faults, skips
    return made


def test_without_a_window_nothing_is_left_out() -> None:
    assert numeric_anomalies.skipping(job(0, Fault(13, 4)), Resume(Tier.MEMORY, 10)).skip == ()


def test_the_faulty_batch_is_the_last_one_left_out() -> None:
    assert numeric_anomalies.skipping(job(1, Fault(13, 4)), Resume(Tier.MEMORY, 10)).skip == (Window(13, 14),)
    assert numeric_anomalies.skipping(job(2, Fault(13, 4)), Resume(Tier.MEMORY, 10)).skip == (Window(12, 14),)


def test_what_was_consumed_before_the_state_cannot_be_left_out() -> None:
    assert numeric_anomalies.skipping(job(100, Fault(13, 4)), Resume(Tier.MEMORY, 10)).skip == (
        Window(10, 14),
    )


def test_the_first_fault_of_the_generation_counts_and_those_of_others_do_not() -> None:
    faults = (Fault(5, 3), Fault(13, 4), Fault(12, 4))
    assert numeric_anomalies.skipping(job(1, *faults), Resume(Tier.MEMORY, 10)).skip == (Window(12, 13),)


def test_a_step_that_no_message_can_hold_is_not_at_fault() -> None:
    """The generation after it could be told to nobody, by no leader to come."""
    stage = running("submit nodes=2 nproc=1 skip=2", "ab")
    stage.do(f"fault {(1 << 63) - 1} nan on=j.1000000 kind=nan")
    found = stage.cluster.state.jobs["j"]
    assert (found.phase, found.numbers.faults) == (JobPhase.RUNNING, ())
    stage.do("fault 12 nan on=j.1000000 kind=nan")
    assert stage.cluster.state.jobs["j"].phase is JobPhase.STOPPING


def test_windows_are_in_batches_not_in_steps() -> None:
    """Batch 13 is left out: step 13 consumes batch 14, and is at fault again."""
    skips = (Window(13, 14),)
    found = numeric_anomalies.skipping(job(1, Fault(13, 4), skips=skips), Resume(Tier.MEMORY, 10)).skip
    assert found == (Window(13, 15),)


def test_every_batch_is_consumed_once_or_left_out_and_the_ranks_agree_with_the_core() -> None:
    rng = random.Random(5)
    for _ in range(200):
        windows: tuple[Window, ...] = ()
        for _ in range(rng.randrange(5)):
            first = rng.randrange(60)
            windows = numeric_anomalies.merged(windows, Window(first, first + rng.randrange(1, 9)))
        consumed = [numeric_anomalies.batch(step, windows) for step in range(100)]
        left_out = [batch for window in windows for batch in range(window.first, window.end)]
        upto = max(consumed)
        assert sorted(consumed + [b for b in left_out if b <= upto]) == list(range(upto + 1))
        plain = [(window.first, window.end) for window in windows]
        assert consumed == [functions.shifted(step, plain) for step in range(100)]


def test_states_of_the_faulty_step_and_later_are_not_trusted_unless_a_later_generation_made_them() -> None:
    faulty = job(0, Fault(13, 4))
    copies = [
        Copy(Tier.MEMORY, step, 0, origin=origin)
        for step, origin in ((12, 4), (13, 4), (20, 2), (13, 5), (30, 5))
    ]
    assert [(c.step, c.origin) for c in numeric_anomalies.trusted(faulty, copies)] == [
        (12, 4),
        (13, 5),
        (30, 5),
    ]
