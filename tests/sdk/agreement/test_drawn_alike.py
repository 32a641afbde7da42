"""What ranks draw by is compared: the order of samples, samples drawn ahead, the seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.demo.memory import flip_bit
from holdfast.data import sampling
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "drawing.py"


class Drawn:
    """One run of three ranks, of which one comes to draw otherwise."""

    def __init__(self, zygote: Zygote, kind: str, every: int = 4) -> None:
        env: Any = {"HOLDFAST_CHECK_REPLICAS_EVERY": str(every)}
        with Node(zygote, SCRIPT, 3, KIND=kind, **env) as node:
            while not node.ended():
                node.turn()
                path, flipped = node.folder / "addresses.json", node.folder / "flipped"
                if path.exists() and not flipped.exists():
                    given = json.loads(path.read_text())
                    flip_bit(given["pid"], given["address"], 3)
                    flipped.touch()
            self.logged = "".join(member.log.read_text() for member in node.members.values())
            said = [each for member in node.members.values() for each in member.said]
        self.found = [each for each in said if each["op"] == "replicas" and each["ranks"]]
        self.drawn = [line["drawn"] for line in node.results()]
        self.told = self.logged.count("cut their shares from different orders")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ahead", "the samples drawn ahead"),
        ("seed", "the seed of the steps"),
        ("order", "the order of samples (seed 3)"),
    ],
)
def test_a_rank_that_comes_to_draw_otherwise_is_named_at_the_next_check(
    zygote: Zygote, kind: str, name: str
) -> None:
    run = Drawn(zygote, kind)
    first = run.found[0]
    assert (first["step"], first["agreed_step"], first["odd"]) == (8, 4, [1]), run.found
    assert first["tensors"] == [name] and first["gradients"] == "agree" and not first["buffers"]
    assert first["digests"][0].startswith("rank 1: ")


def test_without_checks_an_order_that_changes_is_told_of(zygote: Zygote) -> None:
    run = Drawn(zygote, "order", every=0)
    assert not run.found and run.told == 1, run.logged


@pytest.mark.parametrize("every", [0, 4])
def test_ranks_with_data_sets_of_other_sizes_are_told_of_once(zygote: Zygote, every: int) -> None:
    run = Drawn(zygote, "smaller", every)
    assert not run.found and run.told == 1, run.logged
    assert "ranks 0, 2: 200 samples" in run.logged and "rank 1: 199 samples" in run.logged


@pytest.mark.parametrize("kind", ["none", "own_seeds"])
def test_ranks_that_draw_alike_or_by_seeds_of_their_own_are_not_accused(zygote: Zygote, kind: str) -> None:
    run = Drawn(zygote, kind)
    assert not run.found and not run.told


def test_a_generator_that_is_damaged_in_a_step_is_as_it_would_be_in_the_next_one(zygote: Zygote) -> None:
    """So it needs no comparison: what it has drawn in that step has reached all ranks with the gradients."""
    assert Drawn(zygote, "generator").drawn == Drawn(zygote, "none").drawn


def test_samples_drawn_ahead_are_seen_to_be_changed() -> None:
    ahead = sampling.Ahead()
    assert ahead.intact()
    ahead.take(100, 3, 10, range(2, 5), 7)
    assert ahead.intact()
    ahead._rows[1][2] ^= 1
    assert not ahead.intact()
