"""Bits that flip in the memory of one rank are found at the next comparison; healthy ranks never differ."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.demo.memory import flip_bit
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "flipped.py"
EVERY = 4


class Flipped:
    """One run in which bits are flipped from outside, each drawn by the seed from the tensors of `what`."""

    def __init__(self, zygote: Zygote, world_size: int, kind: str, what: str = "", *at: tuple[int, int],
                 seed: int = 0, **more: str) -> None:  # fmt: skip
        chance, self.names = random.Random(f"{seed} {kind} {what}"), {}
        pending = dict.fromkeys(step for _, step in at)
        env: Any = {"HOLDFAST_CHECK_REPLICAS_EVERY": str(EVERY), **more}
        planted = ",".join(f"{rank}:{step}" for rank, step in at)
        with Node(zygote, SCRIPT, world_size, KIND=kind, AT=planted, **env) as node:
            while not node.ended():
                node.turn()
                for step in list(pending):
                    path = node.folder / f"addresses.{step}.json"
                    if path.exists():
                        self.names[step] = flip(json.loads(path.read_text()), what, chance)
                        (node.folder / f"flipped.{step}").touch()
                        del pending[step]
            self.digests = [line["digest"] for line in node.results()]
            self.logged = "".join(member.log.read_text() for member in node.members.values())
            self.said = [
                {**message, "by": member.rank}
                for member in node.members.values()
                for message in member.said
                if message["op"] == "replicas"
            ]

    @property
    def found(self) -> list[dict[str, Any]]:
        """The comparisons in which replicas differed."""
        return [message for message in self.said if message["ranks"]]


def flip(given: dict[str, Any], what: str, chance: random.Random) -> str:
    """Flip a bit of one tensor whose name begins with `what`. Not one of the lowest: a step may round such a
    difference away; nor the highest exponent's, after which the loss is not finite."""
    name = chance.choice(sorted(name for name in given["tensors"] if name.startswith(what)))
    row = given["tensors"][name]
    word = chance.randrange(row["bytes"] // row["word"])
    assert row["word"] == 4, name
    flip_bit(given["pid"], row["address"] + 4 * word, chance.randrange(18, 23))
    return str(name)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", ["parameter", "optimizer", "buffer"])
def test_a_flipped_bit_of_one_of_three_is_found_at_the_next_check(
    zygote: Zygote, what: str, seed: int
) -> None:
    rank, step = seed % 3, 5 + seed % 3
    # With "kept" buffers stay as they are; else DDP makes them equal to rank 0's in each step.
    run = Flipped(zygote, 3, "kept" if what == "buffer" else "plain", what, (rank, step), seed=seed)
    kinds = {"parameter": "model", "buffer": "model", "optimizer": "optimizer"}
    first = run.found[0]
    assert (first["step"], first["agreed_step"], first["odd"]) == (8, 4, [rank]), run.said
    assert first["ranks"] == [0, 1, 2] and first["buffers"] == (what == "buffer")
    leaf = run.names[step].split()[1]
    if what == "optimizer":
        assert any(name.startswith("optimizer.") for name in first["tensors"])
    else:
        assert f"{kinds[what]}.state.{leaf}" in first["tensors"]
    assert len(first["digests"]) == 3 and first["digests"][0].startswith(f"rank {rank}: ")
    assert first["by"] != rank, "a rank that is blamed is not the one that says so"


def test_two_replicas_that_differ_blame_nobody(zygote: Zygote) -> None:
    run = Flipped(zygote, 2, "plain", "parameter last", (1, 5))
    assert [(each["step"], each["odd"], each["ranks"]) for each in run.found] == [
        (8, [], [0, 1]),
        (12, [], [0, 1]),
    ]


def test_an_odd_shard_of_a_hybrid_model_is_a_disagreement_of_its_two_holders(zygote: Zygote) -> None:
    run = Flipped(zygote, 4, "hsdp", "parameter", (3, 6))
    assert [(each["step"], each["odd"], each["ranks"]) for each in run.found[:1]] == [(8, [], [1, 3])]


@pytest.mark.parametrize("kind", ["plain", "dropout", "amp", "unequal", "norm", "hsdp"])
def test_healthy_replicas_agree(zygote: Zygote, kind: str) -> None:
    run = Flipped(zygote, 4 if kind == "hsdp" else 3, kind, HOLDFAST_CHECK_REPLICAS_EVERY="1")
    assert not run.found
    assert [(each["by"], each["step"], each["uncovered"]) for each in run.said] == [(0, 1, [])]
    assert "not covered" not in run.logged


def test_buffers_that_differ_by_design_are_not_covered_and_that_is_logged_once(zygote: Zygote) -> None:
    run = Flipped(zygote, 3, "norm_plain")
    assert not run.found and run.said[-1]["uncovered"] == ["buffers of model"]
    assert run.logged.count("not covered by the check of replicas: buffers of model.") == 1


@pytest.mark.parametrize(("kind", "world_size"), [("fsdp", 2), ("plain", 1)])
def test_state_without_a_replica_is_named_once(zygote: Zygote, kind: str, world_size: int) -> None:
    run = Flipped(zygote, world_size, kind, HOLDFAST_CHECK_REPLICAS_EVERY="2")
    assert not run.found
    (said,) = run.said
    missing = {
        "fsdp": ["shards of model", "shards of optimizer"],
        "plain": ["model", "buffers of model", "optimizer"],
    }
    assert said["uncovered"] == missing[kind]
    assert run.logged.count("not covered by the check of replicas") == 1


def test_checks_change_no_bit_of_the_training(zygote: Zygote) -> None:
    checked = Flipped(zygote, 3, "plain")
    unchecked = Flipped(zygote, 3, "plain", HOLDFAST_CHECK_REPLICAS_EVERY="0")
    assert checked.digests == unchecked.digests and not unchecked.said


def test_what_never_agreed_is_still_the_scripts_mistake(zygote: Zygote) -> None:
    owned = Path(__file__).parents[1] / "owned.py"
    with Node(zygote, owned, 2, KIND="local_undeclared", HOLDFAST_CHECK_REPLICAS_EVERY="4") as node:
        first = list(node.members.values())
        node.run(lambda: all(zygote.poll(member.pid) is not None for member in first))
        lines = [member.log.read_text().strip().splitlines()[-1] for member in first]
    assert all("after step 0" in line and "model.state.0.weight" in line for line in lines)
