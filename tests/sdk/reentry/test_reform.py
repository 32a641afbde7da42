"""A rank is killed anywhere; the others re-form in place, and the run ends as the undisturbed one does."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node, samples

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "train.py"


@dataclass
class Outcome:
    digests: list[str]
    params: set[str]
    samples: dict[int, list[int]]
    tiers: list[tuple[str, int]]
    pids: list[list[int]]


def outcome(zygote: Zygote, world_size: int, *kills: dict[str, Any], spares: int = 0, **env: str) -> Outcome:
    with Node(zygote, SCRIPT, world_size, spares=spares, KILL=json.dumps(kills), **env) as node:
        node.run()
        results = node.results()
        assert [line["rank"] for line in results] == list(range(world_size))
        assert [line["env_rank"] for line in results] == [str(rank) for rank in range(world_size)]
        return Outcome(
            [line["digest"] for line in results],
            {line["params"] for line in results},
            samples(node.folder / "ledger"),
            [(formed["resume"]["tier"], formed["resume"]["step"]) for formed in node.generations],
            [[node.members[seat["member"]].pid for seat in formed["seats"]] for formed in node.generations],
        )


@pytest.fixture(scope="module")
def undisturbed(zygote: Zygote) -> Outcome:
    found = outcome(zygote, 3)
    assert found.tiers == [("fresh", 0)] and len(found.params) == 1
    order = [index for part in found.samples.values() for index in part]
    assert len(order) == 12 * 48 and sorted(order[:300]) == list(range(300)), "an epoch is a permutation"
    return found


@pytest.mark.parametrize("phase", ["start", "forward", "backward", "optimizer", "tail"])
@pytest.mark.parametrize("victim", [0, 2])
def test_killed_within_a_step(zygote: Zygote, undisturbed: Outcome, phase: str, victim: int) -> None:
    found = outcome(zygote, 3, {"rank": victim, "step": 7, "phase": phase}, spares=1)
    assert found.digests == undisturbed.digests
    assert found.samples == undisturbed.samples
    assert len(found.tiers) == 2 and found.tiers[1] in (("donor", 7), ("donor", 8))
    kept = [rank for rank in range(3) if found.pids[0][rank] == found.pids[1][rank]]
    assert kept == [rank for rank in range(3) if rank != victim], "survivors keep their process"


def test_killed_in_a_snapshot(zygote: Zygote, undisturbed: Outcome) -> None:
    found = outcome(zygote, 3, {"rank": 1, "step": 10, "phase": "snapshot"}, spares=1)
    assert found.digests == undisturbed.digests and found.samples == undisturbed.samples
    assert found.tiers[1:] == [("donor", 10)]


def test_killed_at_the_very_first_step_and_twice_later(zygote: Zygote, undisturbed: Outcome) -> None:
    found = outcome(
        zygote,
        3,
        {"rank": 1, "step": 0, "phase": "tail"},
        {"rank": 0, "step": 4, "phase": "backward"},
        {"rank": 1, "step": 4, "phase": "forward"},
        spares=1,
    )
    assert found.digests == undisturbed.digests and found.samples == undisturbed.samples
    assert found.tiers[1] == ("donor", 0)


def test_all_but_one_killed(zygote: Zygote, undisturbed: Outcome) -> None:
    kills = [{"rank": rank, "step": 6, "phase": "forward"} for rank in (0, 2)]
    found = outcome(zygote, 3, *kills)
    assert found.digests == undisturbed.digests and found.samples == undisturbed.samples
    assert found.tiers[-1] == ("donor", 6)


def test_no_donor_left_falls_back_to_the_snapshot(zygote: Zygote, undisturbed: Outcome) -> None:
    found = outcome(zygote, 3, {"rank": 1, "step": 8, "phase": "tail"}, spares=1, LATE="1")
    assert found.digests == undisturbed.digests
    # Who had stepped its optimizer is not clean, for the scheduler had not moved; who was broken before is.
    assert found.tiers[1] in (("memory", 5), ("donor", 8))


def test_killed_after_its_last_step(zygote: Zygote, undisturbed: Outcome) -> None:
    found = outcome(zygote, 3, {"rank": 2, "step": 12, "phase": "after"}, spares=1, WAIT="1")
    assert found.digests == undisturbed.digests and found.samples == undisturbed.samples
    assert found.tiers[1] == ("donor", 12)


def test_four_ranks_and_three_kills(zygote: Zygote) -> None:
    whole = outcome(zygote, 4)
    kills = [{"rank": 3, "step": 2, "phase": "backward"}, {"rank": 0, "step": 6, "phase": "optimizer"}]
    found = outcome(zygote, 4, *kills, {"rank": 0, "step": 9, "phase": "forward"}, spares=1)
    assert found.digests == whole.digests and found.samples == whole.samples


def test_plain_ddp_goes_on_too(zygote: Zygote) -> None:
    found = outcome(zygote, 2, {"rank": 1, "step": 5, "phase": "backward"}, spares=1, PLAIN="1")
    assert found.digests == outcome(zygote, 2, PLAIN="1").digests, "two ranks sum in one order only"


def test_ranks_that_built_other_weights_start_from_rank_0s(zygote: Zygote) -> None:
    assert len(outcome(zygote, 2, STEPS="3").params) == 1


def test_a_silent_rank_is_broken_away_from(zygote: Zygote, undisturbed: Outcome) -> None:
    kill = {"rank": 1, "step": 6, "phase": "backward", "signal": "SIGSTOP"}
    with Node(zygote, SCRIPT, 3, spares=1, KILL=json.dumps([kill])) as node:
        node.run((node.folder / "killed.0").exists)
        victim = node.seat(1)
        for rank in (0, 2):
            survivor = node.seat(rank)
            node.run(lambda survivor=survivor: survivor.board.step == 6)
        node.bury(victim)
        node.run(lambda: len(node.generations) == 2)
        assert [node.seat(rank).said[-1]["op"] != "broken" for rank in (0, 2)] == [True, True]
        node.discard(victim)
        node.run()
        assert [line["digest"] for line in node.results()] == undisturbed.digests


@pytest.mark.parametrize("victim", [0, 2])
def test_a_replacement_that_falls_silent_while_forming(
    zygote: Zygote, undisturbed: Outcome, victim: int
) -> None:
    kill = {"rank": victim, "step": 6, "phase": "backward"}
    with Node(zygote, SCRIPT, 3, KILL=json.dumps([kill]), WAIT="1") as node:
        node.run(lambda: node.generation == 1)
        node.hold = True
        spare = node.start()
        node.run(lambda: spare.ready is not None)
        os.kill(spare.pid, signal.SIGSTOP)
        node.hold = False
        node.run(lambda: len(node.generations) == 2)
        assert node.seat(victim) is spare
        survivors = [node.seat(rank) for rank in range(3) if rank != victim]
        node.run(lambda: all(member.said[-1]["op"] in ("forming", "beat") for member in survivors))
        node.bury(spare)
        node.run(lambda: len(node.generations) == 3)
        node.discard(spare)
        node.run()
        assert [line["digest"] for line in node.results()] == undisturbed.digests
        assert [member.rank for member in survivors] == [rank for rank in range(3) if rank != victim]
        assert node.generations[2]["resume"]["tier"] == "donor"


class Outdated(Node):
    """It believes that the living hold one step less than they say."""

    def resume(self, seats: list[str]) -> Message:
        found = super().resume(seats)
        return {**found, "step": found["step"] - 1} if found["tier"] == "donor" else found


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_rank_gives_no_state_under_the_number_of_another_step(zygote: Zygote, world_size: int) -> None:
    """It would train on from its own, and count it as the older one."""
    with Outdated(zygote, SCRIPT, world_size) as node:
        node.run(lambda: node.generation == 1 and node.seat(0).last("snapshot"))
        node.interrupt("a test")
        node.run(lambda: node.seat(0).last("restore_failed"))
        failed, resume = node.seat(0).last("restore_failed"), node.generations[1]["resume"]
        assert failed is not None and resume["tier"] == "donor"
        told = f"must give its state of step {resume['step']}, but holds step {resume['step'] + 1}"
        assert told in failed["reason"]
