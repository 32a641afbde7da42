"""What replays of a step prove: every row of the table, whichever rank it is, with two ranks and more."""

from __future__ import annotations

import pytest

from controlplane.core.failures import step_replays
from controlplane.core.failures.step_replays import ROWS, judge
from controlplane.core.records.evidence import Origin, ReplayPass
from holdfast.ipc.messages.replicas import DONE

RANKS = [(count, rank) for count in (3, 4, 5) for rank in range(count)]


def held(kind: str, digests: list[str], shift: int = 0) -> ReplayPass:
    """The pass of these digests, by rank."""
    common = max(digests, key=lambda each: (digests.count(each), -digests.index(each)))
    odd = [rank for rank, each in enumerate(digests) if each != common]
    return ReplayPass(kind, shift, common, tuple(odd), tuple(digests[rank] for rank in odd))


def alike(kind: str, digest: str, count: int, shift: int = 0) -> ReplayPass:
    return held(kind, [digest] * count, shift)


def but(kind: str, digest: str, count: int, odd: int, other: str, shift: int = 0) -> ReplayPass:
    """All hold `digest` but rank `odd`."""
    return held(kind, [other if rank == odd % count else digest for rank in range(count)], shift)


def answered(
    passes: list[ReplayPass], count: int, odd: tuple[int, ...], *, elsewhere: bool = False
) -> tuple[str, str, tuple[int, ...]]:
    found = judge(DONE, passes, count, odd, elsewhere=elsewhere)
    return found.origin.value, found.why, found.ranks


@pytest.mark.parametrize(("count", "odd"), RANKS)
def test_a_fault_that_does_not_come_again_was_hardware(count: int, odd: int) -> None:
    seen = but("seen", "spread", count, odd, "flipped")
    again = [alike("again", "right", count)] * 2
    shown = [alike("kept", "start", count), alike("before", "start", count)]
    assert answered([seen, *again, *shown], count, (odd,)) == ("hardware", "not_again", (odd,))
    untouched = but("seen", "right", count, odd, "flipped")
    assert answered([untouched, *again], count, (odd,)) == ("hardware", "not_again", (odd,))


@pytest.mark.parametrize(("count", "odd"), RANKS)
def test_without_proof_that_the_function_is_the_step_nothing_is_said(count: int, odd: int) -> None:
    passes = [but("seen", "spread", count, odd, "flipped"), *[alike("again", "right", count)] * 2]
    expected = ("unknown", "not_shown_faithful", ())
    assert answered(passes, count, (odd,)) == expected
    other = [alike("kept", "start", count), alike("before", "another", count)]
    assert answered([*passes, *other], count, (odd,)) == expected


@pytest.mark.parametrize(("count", "odd"), RANKS)
def test_a_fault_that_goes_with_the_place_to_two_other_devices_is_software(count: int, odd: int) -> None:
    same = [but(kind, "most", count, odd, "odd") for kind in ("seen", "again", "again")]
    # The place of rank `odd` is taken by process `odd - shift`; sums have other bits in another order.
    moved = [but("exchanged", f"m{by}", count, odd - by, f"o{by}", by) for by in (1, 2)]
    assert answered([*same, *moved], count, (odd,)) == ("software", "follows_the_place", (odd,))


@pytest.mark.parametrize(("count", "odd"), RANKS)
def test_a_fault_that_stays_with_the_process_is_not_decided(count: int, odd: int) -> None:
    same = [but(kind, "most", count, odd, "odd") for kind in ("seen", "again", "again")]
    stayed = [but("exchanged", f"m{by}", count, odd, f"o{by}", by) for by in (1, 2)]
    assert answered([*same, *stayed], count, (odd,)) == ("unknown", "follows_the_process", ())
    place = but("exchanged", "m1", count, odd - 1, "o1", 1)
    assert answered([*same, place, stayed[1]], count, (odd,)) == ("unknown", "mixed", ())
    gone = [alike("exchanged", f"m{by}", count, by) for by in (1, 2)]
    assert answered([*same, *gone], count, (odd,)) == ("unknown", "mixed", ())
    assert answered(same, count, (odd,)) == ("unknown", "not_exchanged", ())


@pytest.mark.parametrize(("count", "odd"), RANKS)
def test_steps_that_are_not_deterministic_prove_nothing(count: int, odd: int) -> None:
    seen = but("seen", "most", count, odd, "odd")
    for again in (
        [but("again", "most", count, odd, "once"), but("again", "most", count, odd, "twice")],
        [alike("again", "one", count), alike("again", "other", count)],
        [alike("again", "most", count), but("again", "most", count, odd + 1, "another")],
        [held("again", [f"a{rank}" for rank in range(count)]), held("again", ["b"] * count)],
    ):
        assert answered([seen, *again], count, (odd,)) == ("unknown", "not_deterministic", ())


@pytest.mark.parametrize(("count", "odd"), RANKS)
def test_another_difference_than_the_one_seen_proves_nothing(count: int, odd: int) -> None:
    seen = but("seen", "most", count, odd, "odd")
    for again in (but("again", "most", count, odd + 1, "odd"), but("again", "most", count, odd, "else")):
        found = answered([seen, again, again], count, (odd,))
        assert found == ("unknown", "differs_otherwise", ())


def test_of_two_replicas_a_replay_can_say_which_was_wrong() -> None:
    again = [alike("again", "right", 2)] * 2
    for wrong in (0, 1):
        seen = but("seen", "right", 2, wrong, "flipped")
        assert answered([seen, *again], 2, ()) == ("hardware", "not_again", (wrong,))
    shown = [alike("kept", "start", 2), alike("before", "start", 2)]
    assert answered([held("seen", ["a", "b"]), *again, *shown], 2, ()) == ("hardware", "not_again", ())
    assert answered([held("seen", ["a", "b"]), *again], 2, ()) == ("unknown", "not_shown_faithful", ())


@pytest.mark.parametrize(
    ("exchanged", "expected"),
    [
        (["b", "a"], ("software", "follows_the_place")),
        (["a", "b"], ("unknown", "follows_the_process")),
        (["a", "a"], ("unknown", "mixed")),
        (["a", "c"], ("unknown", "mixed")),
    ],
)
def test_two_replicas_exchange_their_places(exchanged: list[str], expected: tuple[str, str]) -> None:
    same = [held(kind, ["a", "b"]) for kind in ("seen", "again", "again")]
    found = answered([*same, held("exchanged", exchanged, 1)], 2, ())
    assert found == (*expected, ())


def test_several_ranks_that_differ_are_followed_together() -> None:
    same = [held(kind, ["x", "x", "y", "y"]) for kind in ("seen", "again", "again")]
    # In the places: rank 2 and 3 hold y. By 1, processes 1 and 2 take these places; by 2, 0 and 1.
    moved = [held("exchanged", ["x", "y", "y", "x"], 1), held("exchanged", ["y", "y", "x", "x"], 2)]
    assert answered([*same, *moved], 4, ())[:2] == ("software", "follows_the_place")
    # By 2 alone, both ways divide the four alike, so that proves nothing.
    assert answered([*same, held("exchanged", ["p", "p", "q", "q"], 2)], 4, ())[:2] == ("unknown", "mixed")


def test_the_same_rank_at_the_same_step_on_another_device_is_software() -> None:
    assert answered([], 3, (1,), elsewhere=True) == ("software", "again_elsewhere", (1,))
    assert judge("no_step_function", (), 3, (1,), elsewhere=True).origin is Origin.SOFTWARE


@pytest.mark.parametrize("code", ["", "running", *step_replays.REFUSALS])
def test_without_a_replay_the_reason_is_named(code: str) -> None:
    passes = [but("seen", "m", 3, 1, "o"), *[alike("again", "m", 3)] * 2]
    found = judge(code, passes, 3, (1,))
    assert (found.origin, found.why) == (Origin.UNKNOWN, code or "not_tried")
    assert step_replays.WORDS[found.why]


def test_passes_that_cannot_be_true_are_left_out() -> None:
    good = [but("seen", "m", 3, 1, "o"), *[alike("again", "m", 3)] * 2]
    assert answered(good, 3, (1,))[0] == "hardware"
    for spoilt in (ReplayPass("again", 0, "m", (3,), ("o",)), ReplayPass("again", 0, "m", (1, 2), ("o",))):
        assert answered([*good[:2], spoilt], 3, (1,)) == ("unknown", "incomplete", ())
    assert answered(good[1:], 3, (1,)) == ("unknown", "incomplete", ())


def test_every_row_has_words_and_a_reason_of_its_own() -> None:
    reasons = [row.why for row in ROWS]
    assert len(set(reasons)) == len(reasons) and not set(reasons) & set(step_replays.REFUSALS)
    assert all(step_replays.WORDS[why] for why in reasons)
