"""Which way a short heartbeat takes: no sender goes on with a relay that does not answer."""

from __future__ import annotations

from agent.deciding.beat_route import RETRY_MAX_S, RETRY_S, BeatRoute


def opened() -> BeatRoute:
    route = BeatRoute()
    assert route.name("r", "r:1") and route.wants(0.0)
    route.opened()
    return route


def test_without_a_relay_heartbeats_go_directly() -> None:
    route = BeatRoute()
    assert not route.wants(0.0) and not route.through(0.0, 1)
    assert not route.name("", ""), "that is no news"


def test_a_heartbeat_goes_through_the_relay_once_the_stream_is_up_and_the_last_one_was_answered() -> None:
    route = BeatRoute()
    route.name("r", "r:1")
    assert not route.through(0.0, 1), "there is no stream yet"
    route.opened()
    assert route.through(5.0, 2)
    route.taken(2)
    assert route.through(10.0, 3) and route.why == ""


def test_one_that_is_not_answered_by_the_next_sends_that_one_directly_and_all_for_a_while() -> None:
    route = opened()
    assert route.through(5.0, 7)
    assert not route.through(10.0, 8)
    assert route.why == "r has not passed on heartbeat 7" and not route.open
    assert not route.wants(10.0 + RETRY_S - 1)
    assert route.wants(10.0 + RETRY_S)


def test_an_answer_to_another_heartbeat_is_none() -> None:
    route = opened()
    route.through(5.0, 7)
    route.taken(6)
    assert not route.through(10.0, 8)


def test_a_relay_that_fails_again_and_again_is_tried_ever_more_seldom_and_anew_after_a_success() -> None:
    route, now = opened(), 0.0
    waits = []
    for _ in range(6):
        route.failed(now, "gone")
        waits.append(route.retry_at - now)
        now = route.retry_at
        route.opened()
    assert waits == [60.0, 120.0, 240.0, 480.0, RETRY_MAX_S, RETRY_MAX_S]
    assert route.through(now, 9)
    route.taken(9)
    route.failed(now, "gone")
    assert route.retry_at - now == RETRY_S


def test_another_relay_is_tried_at_once_and_none_ends_it() -> None:
    route = opened()
    route.failed(5.0, "gone")
    assert route.name("s", "s:1") and route.wants(5.0) and not route.open
    assert route.name("", "") and not route.wants(6.0)
    route.failed(7.0, "the stream of the former one ends")
    assert not route.wants(1e9)
