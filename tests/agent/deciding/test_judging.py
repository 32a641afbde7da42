"""The agent's own judgement, told as transcripts and as properties of random schedules."""

from __future__ import annotations

import math
import random

import pytest

from agent.deciding.judging import (
    BeatReceived,
    DeviceChanged,
    Effect,
    Event,
    NodeWatch,
    Reading,
    Silent,
    Tick,
    Unwatched,
)

SLACK_S = 1e-6  # of adding floats
WELL = Reading("gpu0", True, "")
BAD = Reading("gpu0", False, "xid 79")


def run(*story: tuple[float, Event]) -> list[tuple[float, Effect]]:
    """Feed a story; ticks fill the gaps, as the shell would have it."""
    watch, told, now = NodeWatch(5.0, 10.0), [], story[0][0]
    for at, event in story:
        while now + watch.look_every_s < at:
            now += watch.look_every_s
            told += [(now, effect) for effect in watch.step(now, Tick())]
            watch.check()
        now = at
        told += [(now, effect) for effect in watch.step(now, event)]
        watch.check()
    return told


def test_a_silent_process_is_told_once() -> None:
    assert run((0, BeatReceived("a")), (30, Tick())) == [(5.0, Silent("a", 5.0))]


def test_a_beating_process_is_never_told() -> None:
    assert run(*[(at, BeatReceived("a")) for at in range(100)]) == []


def test_a_process_that_ended_need_not_beat() -> None:
    assert run((0, BeatReceived("a")), (1, Unwatched("a")), (60, Tick())) == []


def test_a_device_must_be_bad_for_its_whole_timeout() -> None:
    flicker = [(float(at), BAD if at % 8 else WELL) for at in range(100)]
    assert run(*flicker) == []
    bad = run(*[(float(at), BAD) for at in range(30)])
    assert bad == [(10.0, DeviceChanged("gpu0", False, "xid 79"))]


def test_a_device_that_cannot_be_read_is_bad_and_may_come_back() -> None:
    story = [(0.0, WELL), *[(float(at), WELL) for at in range(20, 40)]]
    assert run(*story) == [
        (10.0, DeviceChanged("gpu0", False, "no reading for 10 s")),
        (30.0, DeviceChanged("gpu0", True, "")),
    ]


def test_an_agent_that_was_stopped_blames_nobody() -> None:
    watch = NodeWatch(5.0, 10.0)
    watch.step(0.0, BeatReceived("a"))
    watch.step(0.0, WELL)
    assert watch.step(60.0, Tick()) == []
    assert watch.stalls == 1
    watch.check()
    told = [effect for at in range(61, 66) for effect in watch.step(float(at), Tick())]
    assert told == [Silent("a", 5.0)]


def test_nothing_watched_is_nothing_due() -> None:
    assert NodeWatch(5.0, 10.0).next_deadline() == math.inf


@pytest.mark.parametrize("seed", range(50))
def test_random_schedules(seed: int) -> None:
    """Whoever beats within the timeout lives; whoever does not is told within one look of it, once."""
    chance = random.Random(seed)
    watch, now = NodeWatch(5.0, 10.0), 0.0
    heard: dict[str, float] = {}
    for _ in range(2000):
        now = min(now + chance.uniform(0, 1.0), max(now, watch.next_deadline()))
        member = f"m{chance.randrange(8)}"
        kinds: list[Event] = [BeatReceived(member), Tick(), Tick(), Unwatched(member)]
        event = chance.choice(kinds)
        if isinstance(event, BeatReceived):
            heard[member] = now
        elif isinstance(event, Unwatched):
            heard.pop(member, None)
        for effect in watch.step(now, event):
            assert isinstance(effect, Silent)
            since = heard.pop(effect.member)
            assert 5.0 - SLACK_S <= now - since < 5.0 + watch.look_every_s
            assert effect.age_s == now - since
        assert all(now - since < 5.0 + SLACK_S for since in heard.values())
        watch.check()
        assert watch.next_deadline() > now
