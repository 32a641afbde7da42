"""What an agent sends in the place of a heartbeat that is due."""

from __future__ import annotations

import dataclasses

import pytest

from agent.deciding.outbox import Outbox
from benchmarks.scale import shape
from controlplane.core.records import events as ev
from controlplane.core.records.model import PeerCopy
from controlplane.core.records.step_beats import WHOLE_EVERY, rows, whole


def outbox() -> Outbox:
    made = Outbox()
    made.shortens = True
    return made


def beat(step: int) -> ev.NodeBeat:
    return shape.beat(3, 1, 0, step)


def test_a_heartbeat_in_which_only_steps_have_moved_is_short() -> None:
    made = outbox()
    first = made.record_sent(0.0, beat(100))
    short = made.record_sent(1.0, beat(120))
    assert isinstance(first, ev.NodeBeat) and isinstance(short, ev.StepBeat)
    assert (short.node, short.incarnation, short.seq, short.like) == (first.node, 1, 2, 1)
    steps = rows(short, first)
    assert steps is not None
    assert whole(short, first, steps) == dataclasses.replace(beat(120), seq=2)


def test_a_leader_that_does_not_know_short_heartbeats_gets_whole_ones() -> None:
    made = Outbox()
    assert [type(made.record_sent(0.0, beat(step))) for step in (1, 2)] == [ev.NodeBeat] * 2


def test_one_in_so_many_is_whole() -> None:
    made = outbox()
    kinds = [type(made.record_sent(0.0, beat(step))) for step in range(2 * WHOLE_EVERY)]
    assert [at for at, kind in enumerate(kinds) if kind is ev.NodeBeat] == [0, WHOLE_EVERY]


CHANGES = {
    "another port": {"port": 4},
    "a copy": {"copies": (PeerCopy("j.0", "j", 0, "all", 10, 1),)},
    "a rank less": {"members": beat(1).members[1:]},
    "a rank that stalls": {
        "members": (dataclasses.replace(beat(1).members[0], stalled_s=3.0), *beat(1).members[1:])
    },
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=list(CHANGES))
def test_a_heartbeat_in_which_more_has_changed_is_whole(changes: dict[str, object]) -> None:
    made = outbox()
    made.record_sent(0.0, beat(1))
    changed = dataclasses.replace(beat(1), **changes)  # type: ignore[arg-type]
    assert made.record_sent(1.0, changed) == dataclasses.replace(changed, seq=2)
    assert isinstance(made.record_sent(2.0, changed), ev.StepBeat), "and the next one is like this one"


def test_after_a_report_and_on_a_new_stream_a_heartbeat_is_whole() -> None:
    made = outbox()
    made.record_sent(0.0, beat(1))
    made.record_sent(0.0, ev.MemberReport("n", 1, 0, beat(1).members[0]))
    assert isinstance(made.record_sent(0.0, beat(1)), ev.NodeBeat)
    made.replay(1.0, ())
    assert isinstance(made.record_sent(1.0, beat(1)), ev.NodeBeat)
