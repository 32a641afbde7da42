"""Reports of many agents become one row per rank, as if each had been added up by hand."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.live.readings import NUMBERS, SEAT_FIELDS
from controlplane.analysis.live.table import SUMS
from controlplane.core.records.model import Generation, Placement, Resume
from controlplane.core.records.words import Tier
from controlplane.daemon.diagnosis.feed import window_s
from controlplane.daemon.diagnosis.step_rows import NAMES, UNTOLD, Seating, StepRows
from tests.daemon.diagnosis.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records.diagnosis import StepTimes

NUMBER = 3


def seating() -> Seating:
    """Eight ranks on two nodes, in two pipeline stages of tensor groups of two."""
    seats = tuple(Placement(rank, f"m{rank}", "ab"[rank // 4], rank % 4) for rank in range(8))
    made = Generation("j", NUMBER, 1, seats, "", "", Resume(Tier.FRESH, 0), "")
    return Seating(made, {"a": "rack1"}, tp=2, pp=2, cp=1)


def report(members: list[str], generations: list[int], random: Random, **changed: Any) -> StepTimes:
    """One whose columns are all told, with numbers that are exact in sums."""
    (plain, _) = Stage().times({})
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(plain):
        if str(field.type).startswith("tuple[int") or str(field.type).startswith("tuple[float"):
            columns[field.name] = tuple(random.randrange(1, 1000) for _ in members)
    columns["device_used"] = tuple(random.choice((0.5, 0.25, 7.0)) for _ in members)
    columns["compute_notes"] = tuple(f"note of {member}" for member in members)
    columns["end_kinds"] = tuple(f"end of {member}" for member in members)
    columns |= {"members": tuple(members), "generations": tuple(generations)}
    return dataclasses.replace(plain, **columns | changed)


def by_hand(reports: Iterable[StepTimes]) -> dict[str, dict[str, float]]:
    """The rule, word by word: sums since a process entered its newest generation, else what is newest."""
    rows: dict[str, dict[str, float]] = {}
    for each in reports:
        for at, member in enumerate(each.members):
            row = rows.get(member)
            if row is None or row["generation"] != each.generations[at]:
                row = rows[member] = defaultdict(float)
            for name in NUMBERS:
                column = getattr(each, NAMES.get(name, name))
                value = column[at] if column else UNTOLD.get(name, 0.0)
                row[name] = row[name] + value if name in SUMS else value
            if not 0.0 <= row["device_used"] <= 1.0:
                row["device_used"] = -1.0
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_what_adding_up_by_hand_gives(seed: int) -> None:
    random = Random(seed)
    reports = []
    for node in ("a", "b"):
        mine = [f"m{rank}" for rank in range(8) if "ab"[rank // 4] == node] + [f"stranger on {node}"]
        number = 1
        for _ in range(random.randrange(4)):
            number = min(NUMBER, number + random.randrange(3))
            some = random.sample(mine, random.randrange(1, len(mine) + 1))
            told = random.choice(({}, {"device_used": (), "memory_limit_bytes": (), "compile_s": ()}))
            reports.append(report(some, [random.choice((number, NUMBER)) for _ in some], random, **told))
    seats = seating()
    found, expected = StepRows(reports, seats).columns(), by_hand(reports)
    named = [seat[SEAT_FIELDS.index("member")] for seat in found.seats]
    assert named == [f"m{rank}" for rank in range(8) if f"m{rank}" in expected]
    for member, numbers in zip(named, found.numbers, strict=True):
        assert dict(zip(NUMBERS, numbers.tolist(), strict=True)) == dict(expected[member]), member


def test_seats_say_where_a_rank_is_and_stay_the_same_while_nobody_moves() -> None:
    seats, random = seating(), Random(1)
    members = [f"m{rank}" for rank in range(8)]
    whole = [report(members, [NUMBER] * 8, random) for _ in range(2)]
    first, second = (StepRows([each], seats).columns() for each in whole)
    assert first.seats is second.seats
    row = dict(zip(SEAT_FIELDS, first.seats[5], strict=True))
    assert row == {
        "rank": 5, "member": "m5", "node": "b", "device": 1, "domain": "",
        "dp_rank": 1, "stage": 0, "cp_rank": 0, "tp_rank": 1,
    }  # fmt: skip
    assert first.seats[0][SEAT_FIELDS.index("domain")] == "rack1"
    fewer = StepRows([report(members[:3], [NUMBER] * 3, random)], seats).columns()
    assert len(fewer.seats) == 3 and len(StepRows(whole, seats).columns().seats) == 8


def test_the_kernels_counts_are_all_told_or_none_counts() -> None:
    random = Random(2)
    told = report(["m0"], [NUMBER], random)
    some = dataclasses.replace(told, queued_s=())
    for reports, factor in (([told, told], 2), ([told, some], 1), ([some, some], 0)):
        numbers = dict(zip(NUMBERS, StepRows(reports, seating()).columns().numbers[0], strict=True))
        assert numbers["watched_s"] == factor * told.watched_s[0]
        assert numbers["cpu_limit"] == (told.cpu_limits[0] if reports[-1] is told else -1)


def test_what_ranks_say_of_their_devices_and_of_their_end_is_of_their_newest_report() -> None:
    seats, random = seating(), Random(3)
    older = report(["m0", "m1", "m2"], [NUMBER, NUMBER, NUMBER - 1], random)
    newer = report(["m1", "m2"], [NUMBER, NUMBER - 1], random)
    rows = StepRows([older, newer], seats)
    assert [(work.rank, work.note, work.peak_flops) for work in rows.works()] == [
        (0, "note of m0", older.peak_flops[0]),
        (1, "note of m1", newer.peak_flops[0]),
        (2, "note of m2", newer.peak_flops[1]),
    ]
    assert StepRows([older, newer], seats).works() is rows.works(), "kept while nothing changes"
    ends = rows.ends()
    assert ends is not None
    assert set(ends) == {("end of m0", older.end_steps[0]), ("end of m1", newer.end_steps[0])}
    former = StepRows([report(["m0"], [NUMBER - 1], random)], seats)
    assert former.ends() is None, "nobody has reported in this generation"
    silent = StepRows([dataclasses.replace(older, compute_notes=(), end_kinds=())], seats)
    assert silent.works() == () and silent.ends() == frozenset()


@pytest.mark.parametrize(("nodes", "long_s"), [(1, 5.0), (5_000, 5.0), (10_000, 10.0)])
def test_many_nodes_report_less_often_and_windows_are_as_long(nodes: int, long_s: float) -> None:
    assert window_s(nodes, 5.0) == long_s
    assert window_s(nodes, 0.0) == 0.0, "diagnosis is off"


async def test_a_leader_asks_agents_for_a_report_per_window() -> None:
    stage = Stage(every_s=7.0)
    assert stage.diagnosis.window_s == 7.0
    nodes = stage.play.cluster.state.nodes
    nodes |= {f"n{number}": nodes["a"] for number in range(20_000)}
    assert stage.diagnosis.window_s == pytest.approx(20.0, abs=0.01)
