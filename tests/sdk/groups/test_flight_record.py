"""The flight record of real gloo ranks: it disturbs nothing, and names who left a collective out."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.flight_records.diagnosis import diagnose
from controlplane.analysis.flight_records.packed import unpack
from controlplane.analysis.flight_records.records import DumpFolder, Progress
from holdfast.groups.flight_record import FlightRecord
from tests.exhaustive import all_but
from tests.sdk.groups import test_forming

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

SIZE = 3
ROUNDS = 500


@pytest.mark.parametrize("planted", all_but(1, [2, 0]))
def test_ranks_that_are_asked_all_the_time_train_on_and_name_who_stops(
    zygote: Zygote, folder: Path, planted: int
) -> None:
    store = test_forming.served()
    address = f"127.0.0.1:{store.port}"
    more = (str(SIZE), str(planted))
    with contextlib.ExitStack() as held:
        ranks = [
            held.enter_context(test_forming.lone(zygote, folder, address, rank, *more, script="recorded.py"))
            for rank in range(SIZE)
        ]
        for rank, (pid, log) in enumerate(ranks):
            told = test_forming.wait_for(zygote, folder / f"sum.{rank}", pid, log)
            total, least, asked = map(float, told.split())
            assert total == ROUNDS * sum(range(1, SIZE + 1))
            assert least > 0 and asked > 1
        texts = [
            test_forming.wait_for(zygote, folder / f"record.{rank}", *each) for rank, each in enumerate(ranks)
        ]
    dumps = tuple(unpack(rank, text) for rank, text in enumerate(texts))
    found = diagnose(DumpFolder(dumps))
    assert [each.rank for each in found.culprits] == [planted], found
    assert found.missing == ()
    for dump in dumps:
        last = dump.entries[-1]
        assert (last.progress, "recorded.py" in last.source) == (Progress.SCHEDULED, True)
        assert sorted(group.ranks for group in dump.groups) == [tuple(range(SIZE))] * 2


def test_there_is_no_record_of_another_generation() -> None:
    record = FlightRecord()
    assert record.text(0, 1000) == ""
    record.begin(4)
    assert record.text(3, 1000) == ""
    assert unpack(0, record.text(4, 1000)).entries == ()
    record.keep(ValueError("it broke"))
    assert unpack(0, record.text(4, 1000)).entries == ()
    record.begin(5)
    assert record.text(4, 1000) == ""


def test_a_record_that_does_not_fit_is_not_sent() -> None:
    record = FlightRecord()
    record.begin(1)
    assert record.text(1, 10) == ""
