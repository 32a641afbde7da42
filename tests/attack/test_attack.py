"""A part of the attack that is soon over, and that nothing of the contract is left out of the whole."""

from __future__ import annotations

import pytest

from controlplane.wire import bounds
from tests.attack import calls, numbers
from tests.attack.__main__ import judged
from tests.attack.messages import Spot, filled, put, services
from tests.attack.stage import CALLERS, Stage

SOON = ("user_fault", "Admin.Adopt", "Admin.Drain", "Peer.Get")


async def test_nobody_who_does_not_belong_gets_anything_and_no_number_breaks_anything() -> None:
    async with Stage() as stage:
        rows = [row async for row in calls.attack(stage)]
        rows += [row async for row in numbers.attack(stage, SOON)]
    found = judged(rows)
    assert found["failed"] == []
    assert len(rows) > len(services()) * len(CALLERS) + len(SOON)


def test_every_method_has_a_row() -> None:
    """What a caller of another job hears is said for each method there is, and for no other."""
    assert set(calls.OTHERS) == set(services())


SPOTS = [(name, spot) for name, _, _, found in numbers.messages() for spot in found]


@pytest.mark.parametrize(
    ("name", "spot"), SPOTS, ids=lambda each: each if isinstance(each, str) else each.field
)
def test_every_number_that_comes_in_has_its_bounds(name: str, spot: Spot) -> None:
    row: dict[str, list[str]] = {"wrong": []}
    numbers.is_beyond(name, spot, 0, row)
    assert row["wrong"] == []


def test_a_new_method_or_number_without_a_row_fails_the_attack() -> None:
    told = calls.judged("Admin.Invented", "other-job", calls.Answer(calls.CODES.OK, ""))
    assert told == [
        "Admin.Invented has no row: say in tests/attack/calls.py what a caller of another job hears"
    ]
    row: dict[str, list[str]] = {"wrong": []}
    numbers.is_beyond("Admin.Drain", Spot(("invented_s",), "DrainRequest", "double", False), 0, row)
    assert "DrainRequest.invented_s has no bounds" in row["wrong"][0]
    with pytest.raises(KeyError):
        bounds.of("Anything", "invented")


def test_a_message_says_something_in_every_field() -> None:
    """What is tried is right but for the one number: it gets past all other checks."""
    for _, method, body, found in numbers.messages():
        kind = method.input_type.fields_by_name[body].message_type if body else method.input_type
        assert all(put(filled(kind, {}), spot, 1) for spot in found)


def test_what_does_not_hold_is_told() -> None:
    rows = [
        {"row": "Admin.Stop/none", "wrong": []},
        {"row": "Admin.Stop/expired", "wrong": ["it was let in"]},
    ]
    assert judged(rows) == {"rows": 2, "values": 0, "failed": rows[1:]}
