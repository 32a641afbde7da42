"""What ranks are said to hold alike is proven; what is a rank's own comes back to it, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "owned.py"
STAGES = {"HOLDFAST_PP_SIZE": "2"}


def outcome(
    zygote: Zygote, world_size: int, kind: str, *kills: dict[str, Any], **env: Any
) -> tuple[list[str], list[str], list[tuple[str, int]], str]:
    """Digests and words by rank, what each generation resumed from, and what was logged."""
    with Node(zygote, SCRIPT, world_size, KIND=kind, KILL=json.dumps(kills), **env) as node:
        node.run()
        results, resumes = node.results(), [formed["resume"] for formed in node.generations]
        logged = "".join(member.log.read_text() for member in node.members.values())
        return (
            [line["digest"] for line in results],
            [line["shard"] for line in results],
            [(resume["tier"], resume["step"]) for resume in resumes],
            logged,
        )


def refusals(zygote: Zygote, world_size: int, kind: str, *kills: dict[str, Any], **env: Any) -> list[str]:
    """The last line that each rank of the first generation wrote, which ends with an error."""
    with Node(zygote, SCRIPT, world_size, KIND=kind, KILL=json.dumps(kills), **env) as node:
        first = list(node.members.values())
        node.run(lambda: all(zygote.poll(member.pid) is not None for member in first))
        assert [zygote.poll(member.pid) for member in first] == [1] * world_size, node.report()
        return [member.log.read_text().strip().splitlines()[-1] for member in first]


def kill(rank: int, step: int, phase: str = "forward") -> dict[str, Any]:
    return {"rank": rank, "step": step, "phase": phase}


def test_weights_that_differ_at_the_start_are_refused_by_name_on_every_rank(zygote: Zygote) -> None:
    lines = refusals(zygote, 3, "differ")
    for line in lines:
        assert "SessionError" in line and "as the script built it" in line
        assert "model.state.0.weight" in line and "rank 0 and ranks 1, 2 differ" in line
        assert all(cure in line for cure in ("manual_seed", "from_rank_0=True", "per_rank=True", "shard="))
    assert len(set(lines)) == 1


def test_ranks_that_may_differ_at_the_start_are_given_rank_0s(zygote: Zygote) -> None:
    digests, words, _, _ = outcome(zygote, 3, "from_rank_0", STEPS="4")
    assert len(set(digests)) == 1 and set(words) == {"all"}


def test_a_rank_that_cannot_be_compared_is_named_to_all(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 2, KIND="hidden", STEPS="3") as node:
        node.run()
        logs = [member.log.read_text() for member in node.members.values()]
    assert [
        log.count("the state of ranks 1 cannot be compared with that of the other ranks") for log in logs
    ] == [1, 1], logs


def test_local_steps_are_refused_at_the_first_look(zygote: Zygote) -> None:
    lines = refusals(zygote, 2, "local_undeclared")
    assert all("after step 0" in line and "model.state.0.weight" in line for line in lines)


def test_copies_that_have_drifted_apart_are_not_given_on(zygote: Zygote) -> None:
    """One bit differs since the last look; then a rank is lost, and the survivors compare what they hold."""
    with Node(zygote, SCRIPT, 3, KIND="drift", KILL=json.dumps([kill(1, 7)])) as node:
        survivors = [node.members["job.0"], node.members["job.2"]]
        node.run(lambda: all(zygote.poll(member.pid) is not None for member in survivors))
        lines = [member.log.read_text().strip().splitlines()[-1] for member in survivors]
        # The survivors may be at the end of step 6, or in step 7; both at the same.
        what = "model.state.2.weight (rank 0 and rank 2 differ)"
        told = [f"in the state of step {step}: {what}" for step in (6, 7)]
        assert any(all(each in line for line in lines) for each in told), lines


@pytest.mark.parametrize("victim", [0, 2])
def test_local_steps_that_are_declared_survive_exactly(zygote: Zygote, victim: int) -> None:
    whole, words, _, _ = outcome(zygote, 3, "local", STEPS="11")
    assert len(set(whole)) == 3 == len(set(words))
    found, same, tiers, _ = outcome(zygote, 3, "local", kill(victim, 7), STEPS="11")
    assert found == whole and same == words
    assert tiers[1:] in ([("memory", 5)], [("fresh", 0)]), "the snapshot may not be released yet"


def test_plain_experts_with_a_name_survive_exactly(zygote: Zygote) -> None:
    whole, words, _, _ = outcome(zygote, 4, "experts")
    assert words[0] == words[2] != words[1] == words[3] and whole[0] == whole[2] != whole[1]
    found, same, tiers, _ = outcome(zygote, 4, "experts", kill(3, 7))
    assert (found, same) == (whole, words)
    # Rank 1 holds the same expert; ranks 0 and 2 may still be at the end of step 6, where they meet alone.
    assert tiers[1:] in ([("donor", 7)], [("memory", 5)])


def test_both_holders_of_an_expert_are_lost(zygote: Zygote) -> None:
    whole, _, _, _ = outcome(zygote, 4, "experts")
    found, _, tiers, _ = outcome(zygote, 4, "experts", kill(1, 7), kill(3, 7))
    assert found == whole
    assert tiers[-1] in (("memory", 5), ("donor", 7)), "the second may die when the first has been replaced"


def test_plain_experts_without_a_name_are_refused(zygote: Zygote) -> None:
    lines = refusals(zygote, 4, "experts_undeclared")
    assert all("expert.state.0.weight" in line and "trunk" not in line for line in lines)
    assert all("rank 0 and ranks 1, 3 differ" in line for line in lines)


@pytest.mark.parametrize("victim", [0, 3])
def test_stages_of_a_pipeline_survive_exactly(zygote: Zygote, victim: int) -> None:
    whole, words, _, _ = outcome(zygote, 4, "stages", **STAGES)
    assert words[0] == words[2] != words[1] == words[3] and whole[0] == whole[2] != whole[1] == whole[3]
    found, same, tiers, _ = outcome(zygote, 4, "stages", kill(victim, 7), **STAGES)
    assert (found, same) == (whole, words)
    assert tiers[1:] in ([("donor", 7)], [("memory", 5)]), "a stage may have come to its optimizer already"


def test_the_only_holder_of_a_stage_is_lost(zygote: Zygote) -> None:
    whole, words, _, _ = outcome(zygote, 2, "stages", **STAGES)
    assert len(set(words)) == 2
    found, _, tiers, _ = outcome(zygote, 2, "stages", kill(1, 7), **STAGES)
    assert found == whole and tiers[1:] == [("memory", 5)]


def test_stages_are_refused_without_the_flag(zygote: Zygote) -> None:
    lines = refusals(zygote, 2, "stages")
    assert all("model.state.weight" in line and "--pipeline-parallel" in line for line in lines)


def test_buffers_that_differ_are_each_ranks_own(zygote: Zygote) -> None:
    whole, words, _, logged = outcome(zygote, 2, "buffers")
    assert len(set(whole)) == 2 == len(set(words))
    assert logged.count("buffers of the tracked modules differ") == 1 and "session.ddp" in logged
    for victim in (0, 1):
        found, same, tiers, _ = outcome(zygote, 2, "buffers", kill(victim, 7))
        assert (found, same) == (whole, words)
        assert tiers[1:] == [("memory", 5)]


def test_zero_redundancy_optimizer_survives_exactly(zygote: Zygote) -> None:
    whole, words, _, _ = outcome(zygote, 2, "zero")
    assert len(set(words)) == 2
    found, same, tiers, _ = outcome(zygote, 2, "zero", kill(1, 7))
    assert (found, same) == (whole, words)
    assert tiers[1:] == [("memory", 5)]


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp1_optimizer"])
def test_flat_parameters_of_fsdp1_are_refused(zygote: Zygote, kind: str) -> None:
    lines = refusals(zygote, 2, kind)
    assert all("FSDP1" in line and "fully_shard" in line for line in lines)


def test_an_unfrozen_layer_and_its_group_come_to_the_replacement(zygote: Zygote) -> None:
    whole, _, _, _ = outcome(zygote, 3, "unfreeze")
    assert len(set(whole)) == 1 and whole[0].endswith("[2, 2]") and "False" in whole[0]
    found, _, tiers, _ = outcome(zygote, 3, "unfreeze", kill(1, 7))
    assert found == whole and tiers[1] in (("donor", 6), ("donor", 7)), "others may be at the end of step 6"


def drawn(node: Node, rank: int) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in (node.folder / f"noise.{rank}").read_text().splitlines():
        step, number = line.split()
        found.setdefault(int(step), set()).add(number)
    return found


def test_random_numbers_of_a_lost_rank_are_given_where_all_go_back(zygote: Zygote) -> None:
    """Nobody is clean at the kill: all go back to one snapshot, which has every rank's generators."""
    kills = json.dumps([kill(1, 7, "end"), kill(0, 7, "end")])
    with Node(zygote, SCRIPT, 2, KIND="unseeded", KILL=kills) as node:
        node.run()
        told = [member.last("started") for member in node.members.values()]
        inexact = any(message["inexact"] for message in told if message)
        tiers = {made["resume"]["tier"] for made in node.generations[1:]}
        assert inexact == ("donor" in tiers), (
            "rank 0 may be broken in step 7 before it can be killed at its end"
        )
        if tiers == {"memory"}:
            for rank in (0, 1):
                assert all(len(numbers) == 1 for numbers in drawn(node, rank).values()), "drawn again"
            assert len(drawn(node, 0)[9] | drawn(node, 1)[9]) == 2, "each rank has its own"


def test_random_numbers_that_are_lost_are_told(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 3, KIND="unseeded", KILL=json.dumps([kill(1, 7)])) as node:
        node.run()
        assert node.generations[-1]["resume"]["tier"] == "donor"
        told = [node.seat(rank).last("started") for rank in range(3)]
        assert [message["inexact"] for message in told if message] == ["", "random numbers of rank 1", ""]
