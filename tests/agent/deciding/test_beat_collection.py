"""What a relay keeps of the heartbeats of others, and when it sends everybody away."""

from __future__ import annotations

from agent.deciding.beat_collection import BATCHES_OPEN_MAX, BeatCollection


def collection(*senders: str, bytes_max: int = 1000) -> BeatCollection:
    made = BeatCollection(senders_max=3, bytes_max=bytes_max, interval_s=5.0)
    made.begin(0.0)
    for sender in senders:
        assert made.admit(sender) == ""
    return made


def test_a_batch_has_the_newest_heartbeat_of_each_sender_and_each_once() -> None:
    made = collection("a", "b")
    made.add("a", 1, b"a1")
    made.add("a", 2, b"a2")
    made.add("b", 9, b"b9")
    made.add("stranger", 1, b"no stream")
    assert made.every_s == 2.5
    assert made.batch() == (1, [b"a2", b"b9"])
    assert made.batch() is None
    assert made.taken(1) == [("a", 2), ("b", 9)]
    assert made.taken(1) == [], "once"


def test_a_batch_that_was_overtaken_by_an_answer_was_not_taken() -> None:
    made = collection("a")
    for seq in (1, 2):
        made.add("a", seq, b"x")
        made.batch()
    assert made.taken(2) == [("a", 2)]
    assert made.taken(1) == []


def test_what_does_not_fit_waits_for_the_next_batch() -> None:
    made = collection("a", "b", bytes_max=5)
    made.add("a", 1, b"xxxx")
    made.add("b", 1, b"yyyy")
    assert made.batch() == (1, [b"xxxx"])
    assert made.batch() == (2, [b"yyyy"])


def test_more_senders_than_there_is_room_for_are_refused_with_the_reason() -> None:
    made = collection("a", "b", "c")
    assert made.admit("d") == "3 nodes send their heartbeats through here already"
    made.leave("a")
    assert made.admit("d") == ""


def test_a_heartbeat_of_a_sender_that_has_left_is_not_passed_on() -> None:
    made = collection("a")
    made.add("a", 1, b"x")
    made.leave("a")
    assert made.batch() is None


def test_a_relay_that_was_stopped_passes_nothing_on_that_may_be_old() -> None:
    made = collection("a")
    assert made.trouble(2.5) == "" and made.trouble(5.0) == ""
    made.add("a", 1, b"x")
    assert made.trouble(25.0) == "this relay was stopped for 20.0 s"
    made.close()
    assert made.batch() is None and not made.senders


def test_a_leader_that_answers_nothing_ends_it() -> None:
    made = collection("a")
    for seq in range(BATCHES_OPEN_MAX):
        assert made.trouble(2.5 * (seq + 1)) == ""
        made.add("a", seq, b"x")
        made.batch()
    assert made.trouble(2.5 * (BATCHES_OPEN_MAX + 1)) == "the leader has not answered 4 batches"
