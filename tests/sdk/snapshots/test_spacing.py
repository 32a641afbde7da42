"""Snapshots are taken as often as they cost little, by numbers that are measured elsewhere."""

from __future__ import annotations

import pytest

from holdfast.snapshots.spacing import LOOKS, UNMEASURED, Spacing, allowed

STEPS = 5


def measured(
    step_s: float, cost_s: float, *, exchange_s: float = 0.0, every: int = 10, multiple_of: int = 1
) -> Spacing:
    spacing = Spacing(every, automatic=True, multiple_of=multiple_of)
    for number in range(STEPS):
        spacing.step_begins(number * 1e3)
        spacing.step_ends(number * 1e3 + step_s)
        spacing.snapshot_took(cost_s)
        if exchange_s:
            spacing.exchange_took(exchange_s)
    return spacing


@pytest.mark.parametrize(
    ("step_s", "cost_s", "every"),
    [
        (1.0, 0.019, 1),  # 1.9 % of the time
        (1.0, 0.021, 2),
        (1.0, 0.09, 5),
        (1.0, 0.15, 10),  # 2 % would be seven or eight steps, which does not divide 10
        (1.0, 5.0, 10),  # it costs too much even so, but the job asks for it
    ],
)
def test_the_smallest_number_that_costs_little_is_proposed(step_s: float, cost_s: float, every: int) -> None:
    assert measured(step_s, cost_s).proposal() == every


def test_what_the_ranks_take_to_agree_counts() -> None:
    assert measured(1.0, 0.019, exchange_s=0.01).proposal() == 2


def test_noise_does_not_move_it_to_and_fro() -> None:
    spacing = measured(1.0, 0.015)
    spacing.choose([spacing.proposal()], 30, alone=True)
    for _ in range(30):
        spacing.snapshot_took(0.025)
    assert spacing.every == 1 == spacing.proposal(), "2.5 % is no reason to go back"
    for _ in range(30):
        spacing.snapshot_took(0.035)
    assert spacing.proposal() == 2
    spacing.choose([2, 1], 60, alone=True)
    for _ in range(30):
        spacing.snapshot_took(0.025)
    assert spacing.proposal() == 2, "2.5 % is no reason to take more of them"


def test_one_slow_step_changes_nothing() -> None:
    spacing = measured(0.1, 0.0019)
    spacing.step_begins(0.0)
    spacing.step_ends(60.0)
    spacing.snapshot_took(5.0)
    assert spacing.proposal() == 1


def test_nothing_is_gained_where_others_hold_the_same_state() -> None:
    spacing = measured(1.0, 0.0001)
    assert spacing.choose([1, 1], 10, alone=False) == "" and spacing.every == 10


def test_nothing_is_chosen_unless_it_is_asked_for() -> None:
    fixed = Spacing(10)
    for _ in range(STEPS):
        fixed.step_begins(0.0)
        fixed.step_ends(1.0)
        fixed.snapshot_took(0.0001)
    assert fixed.proposal() == 10 and not fixed.automatic


def test_a_rank_that_has_measured_too_little_leaves_it_to_the_others() -> None:
    new = Spacing(10, automatic=True)
    assert new.proposal() == UNMEASURED
    assert "measured by the other ranks" in new.choose([2, UNMEASURED], 31, alone=True)
    assert new.every == 2 and not new.due(31)


def test_while_no_rank_has_measured_enough_they_look_at_the_first_steps() -> None:
    """After 4 steps three of them and two snapshots are measured."""
    spacing = Spacing(10, automatic=True)
    assert not spacing.due(1), "nobody has said anything yet"
    for completed in (1, 2, 3):
        spacing.choose([spacing.proposal(), UNMEASURED], completed, alone=True)
        assert spacing.due(completed)
        spacing.snapshot_took((5.0, 0.001, 0.002)[completed - 1])  # pages of new memory
        spacing.step_begins(0.0)
        spacing.step_ends(1.0)
    assert "from step 4 on" in spacing.choose([spacing.proposal(), UNMEASURED], 4, alone=True)
    assert spacing.every == 1


def test_they_do_not_look_for_ever_where_no_snapshot_can_be_taken() -> None:
    spacing = Spacing(20, automatic=True, multiple_of=2)
    for completed in range(61, 200):
        spacing.choose([UNMEASURED], completed, alone=True)
    due = [completed for completed in range(61, 200) if spacing.due(completed)]
    first = list(range(62, 61 + 2 * LOOKS + 1, 2))
    assert due == sorted({*first, *range(80, 200, 20), *range(82, 200, 20), *range(84, 200, 20)})


def test_they_do_not_look_where_nothing_would_be_gained() -> None:
    spacing = Spacing(10, automatic=True)
    spacing.choose([UNMEASURED, UNMEASURED], 1, alone=False)
    assert [completed for completed in range(1, 21) if spacing.due(completed)] == [10, 20]


def test_a_check_of_replicas_precedes_every_snapshot() -> None:
    assert allowed(12, 3) == (3, 6, 12)
    assert measured(1.0, 0.0001, every=12, multiple_of=3).proposal() == 3


def test_a_new_generation_begins_with_the_largest_number() -> None:
    spacing = measured(1.0, 0.0001)
    spacing.every = 1
    assert spacing.due(7) and not spacing.due_in_any_case(7)
    spacing.restart()
    assert not spacing.due(7) and spacing.due(10) and spacing.due_in_any_case(10)
    spacing.step_ends(99.0)  # the step that broke is not measured
    spacing.choose([spacing.proposal(), UNMEASURED], 8, alone=True)
    assert spacing.every == 1, "what was measured is kept, and the rank that is new does not stand against it"


def test_without_snapshots_none_is_due() -> None:
    spacing = Spacing(0, automatic=True)
    spacing.choose([spacing.proposal()], 1, alone=True)
    assert not spacing.due(0) and not spacing.due(10) and not spacing.due_in_any_case(10)
