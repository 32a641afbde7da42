"""Whom the detector of flight records blames, and why: one small job for each kind of stoppage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.flight_records.charges import ADVICE
from controlplane.analysis.flight_records.fields import DumpError
from tests.analysis.flight_records.made import judged, named, unsure, world

if TYPE_CHECKING:
    from tests.analysis.flight_records.made import MadeDump


def test_all_completed_blames_nobody() -> None:
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0").call("broadcast", "0")
    found = judged(dumps)
    assert (found.culprits, found.undetermined, found.missing, found.findings) == ((), (), (), ())
    assert found.ranks == 4


def test_the_same_last_collective_on_all_ranks_blames_nobody() -> None:
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0").call("all_reduce", "0", done=False)
    found = judged(dumps)
    assert (found.culprits, found.undetermined, found.missing) == ((), (), ())
    (finding,) = found.findings
    assert finding.kind == "in_progress" and "nobody is behind" in finding.reason


def test_a_rank_that_did_not_arrive_is_named_with_both_lines() -> None:
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0", line=10)
        if dump.rank != 2:
            dump.call("all_reduce", "0", done=False, line=20)
    (culprit,) = judged(dumps).culprits
    assert (culprit.rank, culprit.kind, culprit.group, culprit.sequence) == (
        2,
        "not_arrived",
        "default_pg",
        2,
    )
    assert culprit.operation == "all_reduce" and "ranks 0, 1, 3 wait for it" in culprit.reason
    evidence = dict(culprit.evidence)
    assert evidence["source"] == "train.py:20 (step)" and evidence["last_source"] == "train.py:10 (step)"
    assert evidence["waiting_count"] == 3.0


@pytest.mark.parametrize(
    ("kind", "name", "changed", "words"),
    [
        ("other_collective", "broadcast", {}, "it calls broadcast of [4, 8] Float at train.py:77"),
        ("other_shape", "all_reduce", {"input_sizes": [[4, 9]]}, "it calls all_reduce of [4, 9] Float"),
        ("other_dtype", "all_reduce", {"input_dtypes": ["Half"]}, "it calls all_reduce of [4, 8] Half"),
    ],
)
def test_a_rank_that_calls_something_else(
    kind: str, name: str, changed: dict[str, object], words: str
) -> None:
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0")
        if dump.rank == 1:
            dump.call(name, "0", done=False, line=77, **changed)
        else:
            dump.call("all_reduce", "0", done=False, line=20)
    found = judged(dumps)
    assert named(found) == {1: kind} and unsure(found) == []
    assert words in found.culprits[0].reason
    assert "ranks 0, 2, 3 called all_reduce of [4, 8] Float at train.py:20" in found.culprits[0].reason


@pytest.mark.parametrize("ended", [[1], [1, 2], [0, 2, 3]])
def test_where_ranks_went_apart_an_end_proves_nothing(ended: list[int]) -> None:
    """gloo ends an operation of another shape with an error on whoever meets it, and records that it has
    completed. The ranks that still wait in it are not to blame."""
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0")
        sizes: dict[str, Any] = {"input_sizes": [[4, 9]]} if dump.rank == 1 else {}
        dump.call("all_reduce", "0", done=dump.rank in ended, **sizes)
    assert named(judged(dumps)) == {1: "other_shape"}


def test_between_two_ranks_there_is_no_majority() -> None:
    dumps = world(2)
    dumps[0].call("all_reduce", "0", done=False)
    dumps[1].call("broadcast", "0", done=False)
    found = judged(dumps)
    assert named(found) == {} and unsure(found) == [0, 1]
    assert "without a majority" in found.undetermined[0].reason


def test_another_shape_with_as_many_elements_is_no_fault_where_it_completed() -> None:
    dumps = world(3)
    for dump in dumps:
        dump.call("all_reduce", "0", input_sizes=[[32]] if dump.rank == 1 else [[4, 8]])
    assert named(judged(dumps)) == {}


def test_uneven_sizes_are_no_fault_where_the_operation_allows_them() -> None:
    dumps = world(3)
    whole = [[1, 8], [2, 8], [3, 8]]
    for dump in dumps:
        size = [[dump.rank + 1, 8]]
        dump.call("all_to_all", "0", done=False, input_sizes=size)
        dump.call("all_gather", "0", done=False, input_sizes=size, output_sizes=whole)
        dump.call("reduce_scatter", "0", done=False, input_sizes=whole, output_sizes=size)
    assert named(judged(dumps)) == {}


def test_two_calls_of_a_group_the_other_way_round() -> None:
    dumps = world(3)
    for dump in dumps:
        for name in ("broadcast", "all_reduce") if dump.rank == 0 else ("all_reduce", "broadcast"):
            dump.call(name, "0", done=False)
    assert named(judged(dumps)) == {0: "other_order"}


def test_a_call_that_was_left_out_is_hinted_at() -> None:
    dumps = world(3)
    for dump in dumps:
        if dump.rank:
            dump.call("all_reduce", "0", done=False)
        dump.call("broadcast", "0", done=False)
    found = judged(dumps)
    assert named(found) == {0: "other_collective"} and "left one out" in found.culprits[0].reason


def test_a_deadlock_by_order_names_the_rank_that_called_in_another_order() -> None:
    dumps = world(4, second=[0, 1, 2, 3])
    for dump in dumps:
        dump.call("all_reduce", "second" if dump.rank == 2 else "0", done=False)
    found = judged(dumps)
    assert named(found) == {2: "other_order"} and "waits for them in turn" in found.culprits[0].reason


def test_a_deadlock_of_two_names_nobody() -> None:
    dumps = world(2, second=[0, 1])
    dumps[0].call("all_reduce", "0", done=False)
    dumps[1].call("all_reduce", "second", done=False)
    found = judged(dumps)
    assert named(found) == {} and unsure(found) == [0, 1]
    assert {each.kind for each in found.undetermined} == {"deadlock"}


def test_who_waits_elsewhere_is_a_victim() -> None:
    """Rank 0 lacks rank 1 in a pair; rank 1 waits for rank 2; rank 2 waits for rank 3, which does nothing."""
    dumps = world(4, a=[0, 1], b=[1, 2], c=[2, 3])
    dumps[0].call("all_reduce", "a", done=False)
    dumps[1].call("all_reduce", "b", done=False)
    dumps[2].call("all_reduce", "c").call("all_reduce", "c", done=False)
    dumps[3].call("all_reduce", "c")
    found = judged(dumps)
    assert named(found) == {3: "not_arrived"} and unsure(found) == []


def test_a_rank_that_does_not_complete_what_its_peers_have() -> None:
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0", done=dump.rank != 3, state="started" if dump.rank == 3 else "completed")
    found = judged(dumps)
    assert named(found) == {3: "unfinished"}
    assert "has started all_reduce 1" in found.culprits[0].reason
    assert "completed on ranks 0, 1, 2" in found.culprits[0].reason


def test_a_device_that_has_not_begun_what_the_others_have() -> None:
    dumps = world(4)
    for dump in dumps:
        dump.call("all_reduce", "0", done=False, state="scheduled" if dump.rank == 1 else "started")
    found = judged(dumps)
    assert named(found) == {} and unsure(found) == [1]
    assert found.undetermined[0].kind == "not_started"


def test_a_root_may_have_completed_its_part_before_others_arrive() -> None:
    dumps = world(3)
    dumps[0].call("broadcast", "0")
    dumps[1].call("broadcast", "0", done=False)
    dumps[2].call("all_reduce", "0").call("all_reduce", "0")
    dumps[2].entries.clear()
    dumps[2].status = {"0": {"last_enqueued_collective": 0, "last_completed_collective": 0}}
    found = judged(dumps)
    assert named(found) == {2: "not_arrived"}
    assert [(each.rank, each.why.value) for each in found.missing] == [(2, "empty")]


def test_a_send_without_its_receive() -> None:
    dumps = world(4, pipe=[0, 2])
    dumps[0].call("send 0->1", "pipe").call("send 0->1", "pipe", done=False, line=30)
    dumps[2].call("recv 1<-0", "pipe")
    found = judged(dumps)
    (culprit,) = found.culprits
    assert (culprit.rank, culprit.kind, culprit.operation, culprit.sequence) == (2, "not_arrived", "send", 2)
    assert "whose receive it has not called" in culprit.reason and "train.py:30" in culprit.reason


def test_a_receive_without_its_send_in_a_group_of_four() -> None:
    dumps = world(4)
    dumps[3].call("recv 3<-1", "0").call("recv 3<-1", "0", done=False)
    dumps[1].call("send 1->3", "0")
    assert named(judged(dumps)) == {1: "not_arrived"}


def test_an_open_send_does_not_hide_who_is_behind() -> None:
    """Rank 0 has sent without waiting, and then hangs; rank 1 cannot receive yet: it waits for rank 0."""
    dumps = world(2, pipe=[0, 1])
    dumps[0].call("all_reduce", "0").call("send 0->1", "pipe", done=False)
    dumps[1].call("all_reduce", "0").call("all_reduce", "0", done=False)
    found = judged(dumps)
    assert named(found) == {0: "not_arrived"} and found.culprits[0].confidence < 0.8


def test_a_standstill_that_others_wait_for_is_undetermined() -> None:
    dumps = world(4, pair=[0, 1])
    for dump in dumps:
        dump.call("all_reduce", "pair" if dump.rank < 2 else "0", done=False)
    found = judged(dumps)
    assert named(found) == {} and unsure(found) == [0, 1]
    assert "do not show which" in found.undetermined[0].reason


def test_gloo_has_failed_where_a_rank_never_came() -> None:
    """gloo retires a collective that has timed out just as one that has ended, and records no members."""
    dumps = world(3)
    for dump in dumps:
        for _ in range(1 if dump.rank == 1 else 2):
            dump.call("all_reduce", "0", state="scheduled", profiling_name="gloo:all_reduce")
        dump.groups["0"] = ("default_pg", [])
    found = judged(dumps)
    assert named(found) == {1: "not_arrived"} and found.culprits[0].confidence < 0.8


def test_every_kind_of_charge_has_advice() -> None:
    assert all(text and text[0].isupper() for text in ADVICE.values())
    assert {"not_arrived", "unfinished", "deadlock", "no_dump", "in_progress"} <= ADVICE.keys()


def pipeline(
    rounds: int, *, skips: int | None, micro_batches: int = 1, waits_once_more: bool = False
) -> list[MadeDump]:
    """Three stages over gloo. In the last round rank `skips` leaves out its last send, or rank 2 receives
    once too often."""
    dumps = world(3)
    counts: Counter[tuple[int, str]] = Counter()

    def call(rank: int, name: str, *, done: bool = True, line: int = 10) -> None:
        counts[rank, name] += 1
        more = {"channel_seq_id": counts[rank, name], "tag": 3} if name[:4] in ("send", "recv") else {}
        changed = {"profiling_name": f"gloo:{name}", "state": "scheduled", "retired": done, **more}
        dumps[rank].call(name, "0", done=done, line=line, **changed)

    for number in range(rounds + 1):
        last = number == rounds
        for batch in range(micro_batches):
            out = last and batch == micro_batches - 1
            call(0, "send 0->1")
            call(1, "recv 1<-0")
            if not (out and skips == 1):
                call(1, "send 1->2", line=41)
            call(2, "recv 2<-1", done=not (out and skips == 1))
        if number % 3 == 1:  # now and then all ranks gather something
            for rank in range(3):
                if not (last and rank == 2):
                    call(rank, "all_gather")
        if last and waits_once_more:
            call(2, "recv 2<-1", done=False)
        for rank in range(3):
            if not (last and rank == 2):
                call(rank, "all_reduce", done=not last)
    return dumps


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
@pytest.mark.parametrize("rounds", [3, 40])
def test_a_rank_that_left_out_a_send_of_its_rounds_is_named_with_the_line_of_the_round_before(
    rounds: int, micro_batches: int
) -> None:
    (culprit,) = judged(pipeline(rounds, skips=1, micro_batches=micro_batches)).culprits
    assert (culprit.rank, culprit.kind, culprit.confidence) == (1, "left_out", 0.9)
    assert "rank 2 waits for it: recv" in culprit.reason and "left it out this time" in culprit.reason
    assert dict(culprit.evidence)["left_out_source"] == "train.py:41 (step)"


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_before_its_calls_have_repeated_nobody_is_blamed_for_a_missing_send(rounds: int) -> None:
    found = judged(pipeline(rounds, skips=1))
    assert (named(found), unsure(found)) == ({}, [1, 2])


def test_a_rank_that_receives_once_too_often_is_not_blamed_on_its_peer() -> None:
    found = judged(pipeline(5, skips=None, waits_once_more=True))
    assert 1 not in named(found), found


def of_gloo(dump: MadeDump, name: str, place: int, **more: Any) -> MadeDump:
    fields = {"profiling_name": f"gloo:{name}", "state": "scheduled", "channel_seq_id": place}
    return dump.call(name, "0", **{**fields, "retired": True, **more})


@pytest.mark.parametrize(("handle", "blamed"), [("dropped", {1: "not_arrived"}), ("held", {})])
def test_a_send_that_was_called_without_waiting(handle: str, blamed: dict[int, str]) -> None:
    """gloo gives up a send whose handle was dropped; one whose handle is held is on its way."""
    dumps = world(3)
    of_gloo(dumps[1], "send 1->2", 1, retired=False, handle=handle)
    of_gloo(dumps[2], "recv 2<-1", 1, retired=False)
    for rank in (0, 1):
        dumps[rank].call("all_reduce", "0", done=False)
    found = judged(dumps)
    assert named(found) == blamed, found
    assert handle == "held" or "without keeping the handle" in found.culprits[0].reason


def test_sends_that_are_not_waited_for_hide_nothing() -> None:
    """Rank 0 has several sends on their way, and waits for what rank 1 never sends."""
    dumps = world(2)
    for place in (1, 2, 3):
        of_gloo(dumps[0], "send 0->1", place, retired=False, handle="held")
        of_gloo(dumps[1], "recv 1<-0", place)
    of_gloo(dumps[0], "recv 0<-1", 1, retired=False)
    assert named(judged(dumps)) == {1: "not_arrived"}


def test_gloo_matches_both_ends_by_tag() -> None:
    dumps = world(2)
    of_gloo(dumps[0], "send 0->1", 1, retired=False, tag=7)
    of_gloo(dumps[1], "recv 1<-0", 1, retired=False, tag=1)
    found = judged(dumps)
    (culprit,) = found.culprits
    assert (culprit.rank, culprit.kind) == (
        0,
        "not_arrived",
    ) and "whose send it has not called" in culprit.reason


def test_a_handle_that_is_unknown_is_refused_by_name() -> None:
    dumps = world(1)
    of_gloo(dumps[0], "send 0->1", 1, handle="lent")
    with pytest.raises(DumpError, match=r"entry 0\.handle is 'lent': known are waited, held, dropped"):
        judged(dumps)


def test_with_a_tag_for_each_step_and_a_window_of_the_newest_calls() -> None:
    """No two ranks use a tag twice, and the records do not reach back to the start."""
    dumps = pipeline(41, skips=1)
    for dump in dumps:
        steps = Counter[str]()
        for entry in dump.entries:
            if entry["is_p2p"]:
                steps[entry["profiling_name"]] += 1
                entry.update(tag=steps[entry["profiling_name"]], channel_seq_id=1)
        del dump.entries[:-50]
    assert named(judged(dumps)) == {1: "left_out"}


def test_a_rank_that_left_out_a_collective_and_waits_in_a_receive_is_named_by_its_rounds() -> None:
    dumps = pipeline(5, skips=None)
    dumps[1].entries.pop()  # the newest all_reduce, in which ranks 0 and 2 are
    changed: dict[str, Any] = {"profiling_name": "gloo:all_reduce", "state": "scheduled", "retired": False}
    dumps[2].call("all_reduce", "0", done=False, **changed)
    place = sum(each["profiling_name"] == "gloo:recv 1<-0" for each in dumps[1].entries) + 1
    of_gloo(dumps[1], "recv 1<-0", place, retired=False, tag=3)
    (culprit,) = judged(dumps).culprits
    assert (culprit.rank, culprit.kind, culprit.operation) == (1, "left_out", "all_reduce")
