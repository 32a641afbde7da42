"""The records of sends and receives of real gloo ranks name who left one out, dropped it, or did not come."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.flight_records.diagnosis import diagnose
from controlplane.analysis.flight_records.packed import unpack
from controlplane.analysis.flight_records.records import DumpFolder, HandleUse, Transfer
from tests.sdk.groups import test_forming

if TYPE_CHECKING:
    from controlplane.analysis.flight_records.records import FlightDump
    from tests.sdk.zygote import Zygote

LINES = Path(__file__).with_name("piped.py").read_text().splitlines()


def line_of(words: str) -> str:
    (found,) = [number for number, line in enumerate(LINES, 1) if words in line]
    return f"piped.py:{found}"


def recorded(zygote: Zygote, folder: Path, size: int, deed: str, rounds: int) -> tuple[FlightDump, ...]:
    store = test_forming.served()
    address, more = f"127.0.0.1:{store.port}", (str(size), deed, str(rounds))
    with contextlib.ExitStack() as held:
        ranks = [
            held.enter_context(test_forming.lone(zygote, folder, address, rank, *more, script="piped.py"))
            for rank in range(size)
        ]
        texts = [
            test_forming.wait_for(zygote, folder / f"record.{rank}", *each) for rank, each in enumerate(ranks)
        ]
    return tuple(unpack(rank, text) for rank, text in enumerate(texts))


@pytest.mark.parametrize("rounds", [4, 90])
def test_the_rank_that_left_out_its_send_is_named_with_its_line(
    zygote: Zygote, folder: Path, rounds: int
) -> None:
    """After 90 rounds, both torch's ring and that of the transfers have wrapped."""
    dumps = recorded(zygote, folder, 3, "skips", rounds)
    found = diagnose(DumpFolder(dumps))
    assert [(each.rank, each.kind) for each in found.culprits] == [(1, "left_out")], found
    (culprit,) = found.culprits
    assert "rank 2 waits for it: recv" in culprit.reason and "whose send it has not called" in culprit.reason
    assert line_of("the usual line") in str(dict(culprit.evidence)["left_out_source"])
    waiting = dumps[2].entries[-1]
    assert waiting.open and waiting.transfer == Transfer(False, 1, 2, tag=1, place=rounds + 1)
    assert (waiting.output_sizes, waiting.output_dtypes) == (((4, 8),), ("Float",))
    assert line_of("recv(values, previous, tag=1)") in waiting.source


def test_the_rank_that_did_not_come_to_its_send_is_named(zygote: Zygote, folder: Path) -> None:
    found = diagnose(DumpFolder(recorded(zygote, folder, 3, "stops", 1)))
    assert [(each.rank, each.kind) for each in found.culprits] == [(1, "not_arrived")], found
    assert "piped.py" in str(dict(found.culprits[0].evidence)["last_source"])


def test_a_receive_with_another_tag_than_the_send_is_told(zygote: Zygote, folder: Path) -> None:
    dumps = recorded(zygote, folder, 3, "mistags", 1)
    found = diagnose(DumpFolder(dumps))
    assert [each.rank for each in found.culprits] == [1], found
    sent = [each.transfer for each in dumps[1].entries if each.open]
    assert sent == [Transfer(True, 1, 2, tag=7, place=1)]


def test_a_send_whose_handle_was_dropped_is_named(zygote: Zygote, folder: Path) -> None:
    dumps = recorded(zygote, folder, 3, "drops", 1)
    found = diagnose(DumpFolder(dumps))
    assert [(each.rank, each.kind) for each in found.culprits] == [(1, "not_arrived")], found
    assert "without keeping the handle" in found.culprits[0].reason
    assert HandleUse.DROPPED in [each.handle for each in dumps[1].entries]
