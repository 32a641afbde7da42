"""Clocks: what the kernel says of its own, how four times tell an offset, and what is judged of it."""

from __future__ import annotations

import math
import time
from random import Random

import pytest

from controlplane.analysis.node_checks import findings, judge
from holdfast.node_check import clock
from holdfast.node_check.clock import ClockExchange, KernelClock
from holdfast.node_check.reading import NodeReading


def exchange(ahead_s: float, there_s: float, back_s: float, at_s: float = 1.7e9) -> ClockExchange:
    """An exchange of a clock that is `ahead_s` ahead, with so long a way there and back, and 1 ms between."""
    received_s = at_s + there_s - ahead_s
    return ClockExchange(at_s, received_s, received_s + 1e-3, at_s + there_s + 1e-3 + back_s)


def offset(value: float | None, within: float = 1e-3, name: str = "clock.offset") -> NodeReading:
    return NodeReading(name, value, "s", higher=False, within=within)


def test_the_kernel_of_this_machine_is_asked() -> None:
    found = {each.name: each for each in clock.readings()}
    assert {"clock.max_error", "clock.estimated_error"} >= set(found)
    assert all((each.value or 0.0) > 0.0 or each.reason for each in found.values())


def test_asking_changes_no_clock() -> None:
    before = time.time() - time.monotonic()
    clock.kernel_clock()
    assert abs(time.time() - time.monotonic() - before) < 1.0


def test_a_clock_that_nothing_synchronises_is_named_if_peers_have_something() -> None:
    alone = list(clock.stated(KernelClock(False, 16_000_000, 16_000_000)))
    assert alone[1].value is None and "nothing synchronises" in alone[1].reason
    kept = [list(clock.stated(KernelClock(True, us, 200))) for us in (9_000, 30_000, 480_000)]
    (found,) = findings("n9", judge(alone, kept), load=3.0)
    assert (found.kind, found.confidence) == ("node_part_slow", 0.8)
    assert "16 s, where the mean of 3 peers is 173 ms" in found.reason
    assert "chrony" in found.recommendation
    assert findings("n9", judge(alone, [alone] * 3)) == ()
    assert (
        findings("n9", judge(kept[2], [kept[0], kept[0], kept[1], kept[1]])) == ()
    )  # it was looked at long ago


def test_a_kernel_that_says_nonsense_is_not_believed() -> None:
    odd = list(clock.stated(KernelClock(True, -5, -1)))
    assert all(each.value is None and "no error" in each.reason for each in odd)
    assert all(each.value == clock.STAMP_S for each in clock.stated(KernelClock(True, 0, 0)))


@pytest.mark.parametrize("seed", range(20))
def test_the_offset_lies_within_what_is_said(seed: int) -> None:
    """Ways of any length, and of any difference between there and back."""
    random = Random(seed)
    ahead_s = random.uniform(-5.0, 5.0)
    made = [exchange(ahead_s, random.expovariate(100), random.expovariate(100)) for _ in range(8)]
    found = clock.offset("clock.offset", made)
    assert found.value is not None and found.within > 0.0
    assert abs(found.value - ahead_s) <= found.within
    assert found.within <= min(each.trip_s for each in made) / 2 + clock.STAMP_S


@pytest.mark.parametrize(
    "odd",
    [
        ClockExchange(1.7e9, 1.7e9, 1.7e9, math.nan),
        ClockExchange(1.7e9, math.inf, math.inf, 1.7e9),
        ClockExchange(1.7e9, 0.0, 0.0, 1.7e9 + 1),  # a peer that says nothing of the time
        ClockExchange(1.7e9, -4.0, -4.0, 1.7e9 + 1),
        ClockExchange(1.7e9, 1.7e9 + 2, 1.7e9 + 1, 1.7e9 + 3),  # it answered before it was asked
        ClockExchange(1.7e9, 1.7e9, 1.7e9 + 9, 1.7e9 + 3),  # it took longer than the whole exchange
    ],
)
def test_impossible_times_are_left_out(odd: ClockExchange) -> None:
    assert clock.offset("clock.offset", [odd]).value is None
    assert clock.offset("clock.offset", []).reason
    sound = exchange(0.25, 0.01, 0.01)
    assert clock.offset("clock.offset", [odd, sound]).value == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize(
    ("value", "within", "judgement"),
    [
        (0.0, 1e-3, "fine"),
        (-0.4, 1e-3, "fine"),
        (0.9, 1e-3, "fine"),
        (3.0, 1e-3, "broken"),
        (-3.0, 1e-3, "broken"),
        (-1.7e9, 1e-3, "broken"),  # its clock begins in 1970
        (1.2, 0.5, "not judged"),  # it may be right
        (0.8, 0.5, "not judged"),  # it may be wrong
        (3.0, 0.5, "broken"),
        (0.0, 40.0, "not judged"),
        (None, 0.0, "not measured"),
        (math.nan, 0.0, "not measured"),
        (math.inf, 0.0, "not measured"),
        (1.0, math.nan, "not measured"),
        (1.0, -1.0, "not measured"),
        (1e30, 0.0, "not measured"),
    ],
)
def test_an_offset_is_wrong_beyond_the_limit_and_what_the_exchange_leaves_open(
    value: float | None, within: float, judgement: str
) -> None:
    (found,) = judge([offset(value, within)], [])
    assert found.judgement == judgement and (found.why or judgement == "fine")


def test_a_wrong_clock_is_named_with_what_to_do_and_peers_say_whose_it_is() -> None:
    wrong = offset(-3.2)
    (alone,) = findings("n1", judge([wrong], []))
    assert (alone.kind, alone.confidence, alone.subject) == ("node_part_broken", 0.5, "n1: clock.offset")
    assert "3.2 s behind that of the coordinator" in alone.reason
    assert "chrony" in alone.recommendation
    (among,) = findings("n1", judge([wrong], [[offset(each)] for each in (0.01, -0.02, 0.0)]))
    assert among.confidence == 0.8 and "3 of 3 peers agree with that one" in among.reason
    (theirs,) = findings("n1", judge([wrong], [[offset(each)] for each in (-3.1, -3.3, 0.0)]))
    assert theirs.confidence == 0.5 and "look at the clock of the coordinator" in theirs.reason


def test_an_offset_to_one_peer_names_that_peer() -> None:
    (found,) = findings("n1", judge([offset(90.0, name="clock.offset:10.0.0.7:7070")], []))
    assert "90 s ahead of that of 10.0.0.7:7070" in found.reason
