"""Heartbeats go through other agents, which die, stop and are cut off like all: no living node is silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.deciding.beat_route import BeatRoute
from tests.sim.swarm import swarm
from tests.sim.world import Options, World

SEEDS = 40


def played(options: Options, route: type[BeatRoute] = BeatRoute) -> World:
    world = World(replace(options, relays=True))
    assert world.relays is not None
    world.relays.route = route
    world.run()
    return world


def test_a_swarm_with_relays_keeps_every_promise_and_hears_every_node() -> None:
    sent = passed_on = 0
    for seed in range(SEEDS):
        relays = played(swarm(seed)).relays
        assert relays is not None
        sent, passed_on = sent + relays.sent, passed_on + relays.passed_on
    assert passed_on > 50 * SEEDS, "the schedules hardly used a relay"
    assert passed_on < sent, "no relay ever failed"


class Trusting(BeatRoute):
    """Goes on giving heartbeats to a relay that answers nothing."""

    def through(self, now: float, seq: int) -> bool:
        self.waits_for = None
        return super().through(now, seq)


def test_a_sender_that_trusts_its_relay_is_found_out() -> None:
    with pytest.raises(AssertionError, match="was not heard for"):
        for seed in range(SEEDS):
            played(swarm(seed), Trusting)
