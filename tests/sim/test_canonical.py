"""What counts in the digest of a schedule: what is sent and stored, not the words it is explained with."""

from __future__ import annotations

from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, JobState
from controlplane.core.records.notes import NoteKind
from tests.sim.canonical import Digest


def test_prose_does_not_count() -> None:
    said = Digest().canonical([fx.Kill("n0", "job", "job.1", "did not stop within 5 s")])
    assert said == Digest().canonical([fx.Kill("n0", "job", "job.1", "still running after 5 s")])
    assert b"job.1" in said


def test_who_is_told_what_counts() -> None:
    one = Digest().canonical([fx.Kill("n0", "job", "job.1", "did not stop in time")])
    for other in (
        fx.Kill("n1", "job", "job.1", "did not stop in time"),
        fx.Kill("n0", "job", "job.2", "did not stop in time"),
        fx.Return("n0", "job", 1),
    ):
        assert Digest().canonical([other]) != one


def test_rows_count_but_for_their_prose() -> None:
    def stored(phase: JobPhase, reason: str) -> bytes:
        return Digest().canonical([fx.StoreJob("job", JobState("job", phase, reason))])

    assert stored(JobPhase.RUNNING, "every rank trains") == stored(JobPhase.RUNNING, "all ranks train")
    assert stored(JobPhase.RUNNING, "every rank trains") != stored(JobPhase.PARKED, "every rank trains")


def test_the_order_of_effects_counts() -> None:
    first, second = fx.Return("n0", "job", 1), fx.Return("n1", "job", 1)
    assert Digest().canonical([first, second]) != Digest().canonical([second, first])


def test_what_only_people_are_told_does_not_count() -> None:
    assert Digest().canonical([fx.Note(NoteKind.NODE_SUSPECTED, "n0", "its stream broke")]) == b""
