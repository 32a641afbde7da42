"""Nobody waits for ever, and nothing is remembered for ever, on account of what has gone."""

from __future__ import annotations

import random

from controlplane.core.failures import network
from controlplane.core.records.model import PeerSight
from tests.core.elasticity.test_elastic import alone, notes
from tests.core.test_cluster import running


def test_a_newcomer_that_no_launcher_starts_does_not_hold_up_every_change_to_come() -> None:
    stage = alone()
    stage.do("hello b")
    assert [line for line in stage.do("live 60") if line.startswith("Launch b")]
    told = notes(stage.do("live 125"))
    assert [line for line in told if line.startswith("resize_dropped j")]
    assert [line for line in told if line.startswith("node_held b")]
    stage.do("hello c")
    assert [line for line in stage.do("live 60") if line.startswith("Launch c")]


def test_a_rank_that_stalled_and_was_lost_is_not_looked_at_any_more() -> None:
    stage = running()
    stage.do("stalled 1")
    job = stage.cluster.state.jobs["j"]
    assert list(job.recovery.stalled) == ["j.1000001"]
    stage.do("live 40 b")
    assert not job.recovery.stalled
    stage.do("beat b")
    assert list(job.recovery.stalled) == ["j.1000001"], "it lives, and is no further"


def test_a_spare_that_goes_with_its_node_has_not_failed() -> None:
    stage = running("submit nodes=1 nproc=1 spares=1", "a")
    stage.do("report j.1000001 starting", "lose a", "hello a launcher=a-2")
    assert stage.cluster.state.jobs["j"].recovery.spare_failures == {}


def test_what_nodes_say_of_each_other_is_put_together_as_by_a_look_at_every_pair() -> None:
    chance = random.Random(7)
    for _ in range(200):
        ring = [f"n{number}" for number in chance.sample(range(20), 8)]
        said = {
            one: {
                other: PeerSight(other, 3, chance.choice((0, 0, 0, 1, 3)), "no route")
                for other in [*ring, "elsewhere"]
                if other != one and chance.random() < 0.4
            }
            for one in chance.sample(ring, 6)
        }
        bad = network.lines(said, ring)
        pairs = [(one, other) for at, one in enumerate(ring) for other in ring[at + 1 :]]
        hurt = [
            (one, other)
            for one, other in pairs
            if any(s and s.failed for s in (said.get(one, {}).get(other), said.get(other, {}).get(one)))
        ]
        assert [(line.one, line.other) for line in bad] == hurt
        gone = network.untangle(ring, bad)
        left = [line for line in bad if line.kind != "lossy" and not {line.one, line.other} & set(gone)]
        assert not left and len(gone) == len(set(gone))
