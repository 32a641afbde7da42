"""The first cause of an incident, by the ends of its processes: right answers, and input that is absurd."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import pytest

from benchmarks.diagnosis.incident_scores import rows
from controlplane.analysis.failure_logs.stamps import ClockOffset
from controlplane.analysis.incident_causes.beats import BeatClocks
from controlplane.analysis.incident_causes.incident import CalledApart, IncidentEnds, JudgedIncident, judged
from controlplane.core.records.diagnosis import RankEnded

NOW_S = 1_800_000_000.0
TRACEBACK = """step {step}
Traceback (most recent call last):
  File "/app/train.py", line 90, in <module>
    main()
  File "/app/data.py", line 12, in load
    raise ValueError("bad sample")
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s)
ValueError: bad sample"""
GONE = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.0.2]:4001"
)


def end(
    rank: int, text: str = "", *, code: int | None = 1, number: int | None = None, **more: Any
) -> RankEnded:
    known: dict[str, Any] = {"node": f"n{rank // 2}", "at_s": NOW_S + rank * 0.01, "member": f"j.{rank}"}
    known |= more
    code = None if number is not None else code
    return RankEnded(incarnation=1, job="j", rank=rank, text=text, exit_code=code, signal=number, **known)


def judge(*ends: RankEnded, **more: Any) -> JudgedIncident:
    known = {"lost": (), "earlier": {}, "clocks": {}} | more
    found = judged(IncidentEnds("j", 1, ends, **known))
    assert found is not None
    return found


def test_the_rank_that_raised_is_the_root_and_the_others_its_cascade() -> None:
    found = judge(end(0, GONE), end(1, GONE), end(2, TRACEBACK.format(step=7)), end(3, GONE)).cause
    assert (found.rank, found.cause, found.exception) == (2, "exception", "ValueError")
    assert (found.file, found.line, found.node) == ("/app/data.py", 12, "n1")
    assert found.cascade == ("ranks 0, 1, 3: the connection to another rank broke",)
    assert found.confidence == 0.95 and "only rank with a cause of its own" in found.reason


@pytest.mark.parametrize(
    ("ended", "cause", "restart"),
    [
        (end(1, number=9, oom_kills=1, cgroup="/x", memory_limit_bytes=1 << 30), "oom_killed", True),
        (end(1, code=137, oom_kills=2, cgroup="/sys/fs/cgroup/x"), "oom_killed", True),
        (end(1, number=9, oom_kills=0), "killed", True),
        (end(1, number=9), "killed", True),
        (end(1, number=11), "segfault", True),
        (end(1, number=7), "bus_error", True),
        (end(1, code=3), "unknown", True),
        (end(1, "x", kernel_text="NVRM: Xid (PCI:0000:3b:00): 79, pid=77, GPU has fallen off the bus."),
         "gpu_lost", True),
        (end(1, "OSError: [Errno 28] No space left on device"), "disk_full", False),
        (end(1, "ModuleNotFoundError: No module named 'apex'"), "import_error", False),
    ],
)  # fmt: skip
def test_what_exit_code_signal_and_kernel_say(ended: RankEnded, cause: str, restart: bool) -> None:
    quiet = [end(rank, GONE, step=500, began_step=100) for rank in (0, 2, 3)]
    found = judge(*quiet, ended).cause
    assert (found.rank, found.cause, found.restart) == (1, cause, restart), found


def test_what_the_kernel_counted_is_told_with_the_limit() -> None:
    ended = end(1, number=9, oom_kills=1, cgroup="/sys/fs/cgroup/x", memory_limit_bytes=1 << 30)
    assert "/sys/fs/cgroup/x" in judge(ended).cause.text and "1 GiB" in judge(ended).cause.text
    assert "no limit of its own" in judge(end(1, number=9, oom_kills=1, cgroup="/c")).cause.text
    assert "is not known" in judge(end(1, number=9)).cause.text
    assert "counted no kill" in judge(end(1, number=9, oom_kills=0)).cause.text


def test_of_what_the_kernel_wrote_the_first_line_is_told() -> None:
    killed = "Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB, anon-rss:1kB"
    found = judge(end(1, number=9, kernel_text=f"{killed}\noom_reaper: reaped process 77 (python)")).cause
    assert (found.cause, found.words_of, found.text) == ("oom_killed", "oom_kill.c", killed)


def test_the_same_exception_at_the_same_place_on_two_lives_comes_again() -> None:
    once = judge(end(2, TRACEBACK.format(step=7), step=40, began_step=0))
    earlier = {rank: [attempt] for rank, attempt in once.attempts}
    assert not once.cause.restart and once.cause.advice_confidence < 0.95
    again = judge(end(2, TRACEBACK.format(step=7), step=40, began_step=30), earlier=earlier)
    assert not again.cause.restart and again.cause.advice_confidence == 0.95
    assert "at step 40" in again.cause.advice and "/app/data.py:12" in again.cause.advice
    assert [each.kind for each in again.findings] == ["first_failure", "fails_again"]
    later = judge(end(2, TRACEBACK.format(step=7), step=90, began_step=30), earlier=earlier)
    assert later.cause.advice_confidence < 0.95


def test_a_rank_that_called_another_shape_comes_before_the_one_whose_process_that_ended() -> None:
    why = "in all_reduce 132 it calls all_reduce of [1024] Float, while ranks 1, 2 called all_reduce of [1]"
    found = judge(end(3, number=6), apart=[CalledApart(0, "n0", 40, why)])
    cause = found.cause
    assert (cause.rank, cause.node, cause.cause, cause.step) == (0, "n0", "desynchronized", 40)
    assert (cause.text, cause.cascade) == (why, ("rank 3: native code ended the process",))
    assert {dict(each.place).get("rank") for each in found.findings if each.kind == "first_failure"} == {0}
    assert cause.advice.count("ranks called different collectives") == 1
    alone = judge(end(3, number=6)).cause
    assert (alone.rank, alone.cause) == (3, "aborted")


def test_a_rank_that_called_another_shape_and_raised_is_told_once() -> None:
    found = judge(end(0, GONE, step=40), end(3, number=6), apart=[CalledApart(0, "n0", 40, "another shape")])
    assert (found.cause.rank, found.cause.cause) == (0, "desynchronized")
    assert found.cause.cascade == ("rank 3: native code ended the process",)


def test_two_lives_within_one_incident_count_as_two() -> None:
    first = end(2, TRACEBACK.format(step=7), step=40, member="j.2")
    second = end(2, TRACEBACK.format(step=7), step=40, member="j.9")
    assert judge(first, second).cause.advice_confidence == 0.95


def test_a_log_whose_beginning_was_not_read_does_not_say_that_it_failed_early() -> None:
    known = judge(end(2, TRACEBACK.format(step=700), skipped_bytes=0)).cause
    cut = judge(end(2, TRACEBACK.format(step=700), skipped_bytes=9000)).cause
    assert "first steps" in known.advice and "first steps" not in cut.advice
    assert "first steps" not in judge(end(2, "ValueError: x")).cause.advice, "it names no step at all"


def test_who_was_ended_on_order_is_no_root_and_if_all_were_nothing_is_said() -> None:
    ordered = [end(rank, number=9, ordered="its job is started again") for rank in (0, 1, 3)]
    found = judge(*ordered, end(2, TRACEBACK.format(step=7))).cause
    assert found.rank == 2 and found.cascade == (
        "ranks 0, 1, 3: Holdfast ended it: its job is started again",
    )
    assert judged(IncidentEnds("j", 1, ordered, (), {}, {})) is None
    assert judged(IncidentEnds("j", 1, (), (), {}, {})) is None


def test_a_lost_node_is_the_root_of_what_its_peers_report() -> None:
    found = judge(end(0, GONE), end(1, GONE), lost=((2, "n1", "node n1 was lost"), (3, "n1", "lost"))).cause
    assert found.cause == "node_failure" and found.candidates == (2, 3) and found.restart


KNOWN = {f"n{node}": ClockOffset(0.0, 0.02, 30, "heartbeats") for node in (0, 1)}


def test_times_decide_between_two_roots_only_beyond_the_margins() -> None:
    first, other = end(0, TRACEBACK.format(step=7)), end(3, "MemoryError", at_s=NOW_S + 8.0)
    found = judge(other, first, clocks=KNOWN).cause
    assert found.rank == 0 and "0.02 s from 30 heartbeats" in found.reason
    assert "within 0.02 s from heartbeats" in found.clocks
    near = judge(first, end(3, "MemoryError", at_s=NOW_S + 4.0), clocks=KNOWN).cause
    assert near.rank == -1 and near.candidates == (0, 3)
    assert "cannot be told" in near.reason
    unknown = judge(first, end(3, "MemoryError", at_s=NOW_S + 6.5)).cause
    assert unknown.rank == -1 and "are not known" in unknown.clocks


def test_a_clock_that_is_wrong_by_an_hour_is_taken_out() -> None:
    clocks = BeatClocks()
    for beat in range(20):
        clocks.heard("n0", NOW_S + beat, NOW_S + beat + 0.001)
        clocks.heard("n1", NOW_S + beat - 3600.0, NOW_S + beat + 0.002)
    assert clocks.offsets()["n1"].offset_s == pytest.approx(-3600.0, abs=0.01)
    first = end(0, TRACEBACK.format(step=7), at_s=NOW_S)
    other = end(3, "MemoryError", at_s=NOW_S + 20.0 - 3600.0)
    assert judge(first, other, clocks=clocks.offsets()).cause.rank == 0


def test_a_clock_is_known_after_three_beats_and_anew_after_it_was_set() -> None:
    clocks = BeatClocks()
    for sent_s in (math.nan, math.inf, 0.0, -5.0):
        clocks.heard("n", sent_s, NOW_S)
    clocks.heard("n", NOW_S + 2, NOW_S)
    clocks.heard("n", NOW_S + 2, NOW_S)
    assert clocks.offsets() == {}
    for beat in range(10):
        clocks.heard("n", NOW_S + beat + 2, NOW_S + beat + 0.001)
    assert clocks.offsets()["n"].offset_s == pytest.approx(2.0, abs=0.01)
    for beat in range(3):
        clocks.heard("n", NOW_S + beat - 10, NOW_S + beat)
    assert clocks.offsets()["n"].offset_s == pytest.approx(-10.0, abs=0.01)
    for beat in range(3):
        clocks.heard("n", NOW_S + beat + 90, NOW_S + beat)
    assert clocks.offsets()["n"].offset_s == pytest.approx(90.0, abs=0.01)
    clocks.forget(frozenset({"m"}))
    assert clocks.offsets() == {}


@pytest.mark.parametrize("seed", range(40))
def test_absurd_ends_are_judged_all_the_same(seed: int) -> None:
    random = Random(seed)
    junk = bytes(random.randrange(256) for _ in range(4000)).decode(errors="replace")
    texts = (junk, "x" * 200_000, "", "\n" * 9000, "Traceback (most recent call last):\n" * 400,
             TRACEBACK + junk,
             "[rank99999]: boom\n[rank7]: ValueError: of another rank", "step 9" * 999)  # fmt: skip
    times = (0.0, 1e11, NOW_S, 5e-324)
    ends = [
        end(rank, random.choice(texts), code=random.choice((0, 1, -9, 2**31 - 1, 255)),
            at_s=random.choice(times),
            number=random.choice((None, None, 9, 64)), step=random.choice((-1, 0, 10**12)),
            skipped_bytes=random.choice((0, 1 << 50)), kernel_text=random.choice(("", junk)))
        for rank in range(random.randint(1, 9))
    ]  # fmt: skip
    found = judge(*ends).cause
    assert 0.0 <= found.confidence <= 1.0 and found.advice
    assert all(len(each) < 400 for each in (found.text, found.reason, *found.cascade))


def test_of_a_hundred_made_up_incidents_no_wrong_rank_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    (_, counts) = rows(range(7000, 7004))[-1]
    with capsys.disabled():
        print(f"\nfirst causes of made-up incidents: {dict(counts)}")
    assert counts["wrong rank"] == 0 and counts["incidents"] == 100
    least = Counter({"rank": 95, "cause": 93, "line": 98, "restart": 95})
    assert all(counts[name] >= least[name] for name in least), counts
