"""Which part of which log answers a question about a rank."""

from __future__ import annotations

from controlplane.core.records.logs import NO_END, LogFile, LogMark
from controlplane.reporting import log_stints


def files() -> dict[str, tuple[str, LogFile]]:
    """Rank 1 died on n1 in generation 1; a spare on n2 took its place, and is rank 0 since the job shrank."""
    of = {
        "j.1": ("n1", LogFile("j.1", 900, 0, True, (LogMark(0, 1.0, 0, 1), LogMark(500, 9.0, 0, 2)))),
        "j.2": ("n1", LogFile("j.2", 400, 100, False, (LogMark(0, 1.0, 1, 1),))),
        "j.3": (
            "n2",
            LogFile(
                "j.3",
                700,
                0,
                True,
                (LogMark(7, 1.0, -1, 0), LogMark(50, 9.0, 1, 2), LogMark(600, 20.0, 0, 3)),
            ),
        ),
    }
    return of


def found() -> list[log_stints.LogStint]:
    return [stint for node, file in files().values() for stint in log_stints.stints(node, file)]


def test_the_process_that_has_a_rank_is_shown_whole() -> None:
    stint = log_stints.current(found(), 0)
    assert stint is not None
    assert (stint.node, stint.member, stint.from_bytes, stint.end_bytes) == ("n2", "j.3", 7, NO_END)


def test_a_process_that_went_on_as_another_rank_is_shown_up_to_there() -> None:
    stint = log_stints.current(found(), 1)
    assert stint is not None
    assert (stint.member, stint.from_bytes, stint.end_bytes) == ("j.3", 7, 600)


def test_the_process_before() -> None:
    first, second = log_stints.previous(found(), 0), log_stints.previous(found(), 1)
    assert first is not None and second is not None
    assert (first.member, first.end_bytes, second.member, second.end_bytes) == ("j.1", NO_END, "j.2", NO_END)
    only = [stint for stint in found() if stint.member == "j.1"]
    assert log_stints.previous(only, 0) is None and log_stints.previous(only, 5) is None


def test_a_generation() -> None:
    stint = log_stints.in_generation(found(), 1, 2)
    assert stint is not None and (stint.member, stint.from_bytes, stint.end_bytes) == ("j.3", 50, 600)
    assert log_stints.in_generation(found(), 1, 3) is None
    assert log_stints.generations_of(found(), 1) == [1, 2] and log_stints.ranks_of(found()) == [0, 1]
