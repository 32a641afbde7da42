"""Bits that flip in one rank's gradients after they were reduced are found in a checked step; what is reduced
elsewhere accuses nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.agreement.test_replicas import Flipped

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote


@pytest.mark.parametrize(("world_size", "kind"), [(3, "plain"), (4, "plain"), (3, "amp"), (3, "accumulated")])
def test_a_flipped_gradient_is_found_and_came_first(zygote: Zygote, world_size: int, kind: str) -> None:
    rank = world_size - 1
    run = Flipped(zygote, world_size, kind, "gradient", (rank, 7), GRADIENTS="1", seed=world_size)
    first = run.found[0]
    assert (first["step"], first["agreed_step"], first["odd"]) == (8, 4, [rank]), run.said
    assert (first["gradients"], first["buffers"]) == ("differ", False)
    assert first["tensors"][0] == "gradients.model." + run.names[7].split()[1], run.said
    assert any(name.startswith("model.state.") for name in first["tensors"]), "the state follows"
    assert first["digests"][0].startswith(f"rank {rank}: ") and first["by"] != rank


def test_two_replicas_whose_gradients_differ_blame_nobody(zygote: Zygote) -> None:
    run = Flipped(zygote, 2, "plain", "gradient", (1, 7), GRADIENTS="1")
    first = run.found[0]
    assert (first["step"], first["odd"], first["ranks"]) == (8, [], [0, 1])
    assert (first["gradients"], first["tensors"][0][:10]) == ("differ", "gradients.")


def test_gradients_of_the_shards_of_a_hybrid_model_are_compared_among_their_holders(zygote: Zygote) -> None:
    run = Flipped(zygote, 4, "hsdp", "gradient", (3, 7), GRADIENTS="1")
    assert [(each["step"], each["ranks"], each["gradients"]) for each in run.found[:1]] == [
        (8, [1, 3], "differ")
    ]


def test_of_a_flip_in_memory_the_gradients_of_the_next_step_are_equal(zygote: Zygote) -> None:
    run = Flipped(zygote, 3, "plain", "parameter last", (1, 7), HOLDFAST_CHECK_REPLICAS_EVERY="1")
    first = run.found[0]
    assert (first["step"], first["agreed_step"], first["odd"], first["gradients"]) == (8, 7, [1], "agree")


def test_gradients_that_differ_without_any_effect_are_told_once_and_nothing_is_left(zygote: Zygote) -> None:
    run = Flipped(zygote, 3, "still", "gradient", (1, 3), (1, 7), (1, 11), GRADIENTS="1")
    first = run.found[0]
    assert (first["step"], first["odd"], first["gradients"], first["buffers"]) == (4, [1], "differ", True)
    assert [each["step"] for each in run.found] == [4], "a difference that stays is the script's own"
    assert run.said[-1]["uncovered"] == ["gradients of optimizer"]
    assert run.logged.count("not covered by the check of replicas: gradients of optimizer") == 1


def test_a_script_that_reduces_by_itself_accuses_nobody(zygote: Zygote) -> None:
    run = Flipped(zygote, 3, "own", HOLDFAST_CHECK_REPLICAS_EVERY="2")
    assert not run.found
    assert [each["uncovered"] for each in run.said] == [["gradients of optimizer"]]
    assert run.logged.count("not covered by the check of replicas: gradients of optimizer") == 1


def test_an_optimizer_that_never_steps_in_a_checked_step_is_told_of(zygote: Zygote) -> None:
    run = Flipped(zygote, 3, "accumulated", HOLDFAST_CHECK_REPLICAS_EVERY="2", STEPS="14")
    assert not run.found and [each["uncovered"] for each in run.said] == [[]]
    run = Flipped(zygote, 3, "accumulated_early", HOLDFAST_CHECK_REPLICAS_EVERY="4", STEPS="18")
    assert not run.found and run.said[-1]["uncovered"] == ["gradients of optimizer"]
    assert run.logged.count("not covered by the check of replicas: gradients of optimizer") == 1


TENSOR_PARALLEL: Any = {"HOLDFAST_TP_SIZE": "2", "HOLDFAST_CHECK_REPLICAS_EVERY": "1"}
"""Four or six ranks are two or three replicas of two ranks each."""


def test_addends_that_were_not_compared_are_not_called_equal(zygote: Zygote) -> None:
    """What flips in one rank's addend reaches its tensor group within the optimizer's step."""
    run = Flipped(zygote, 6, "tp", "gradient norm", (3, 7), GRADIENTS="1", **TENSOR_PARALLEL)
    first = run.found[0]
    assert (first["step"], first["odd"], first["gradients"]) == (8, [2, 3], ""), run.said
    assert run.said[0]["uncovered"] == ["gradients of optimizer"]


@pytest.mark.parametrize(("what", "gradients"), [("parameter", ""), ("gradient first", "differ")])
def test_of_three_replicas_of_a_tensor_group_the_odd_rank_is_named(
    zygote: Zygote, what: str, gradients: str
) -> None:
    flag: Any = {"GRADIENTS": "1"} if gradients else {}
    run = Flipped(zygote, 6, "tp", what, (3, 7), **TENSOR_PARALLEL, **flag)
    first = run.found[0]
    assert (first["step"], first["ranks"], first["odd"]) == (8, [1, 3, 5], [3]), run.said
    assert first["gradients"] == gradients


def test_healthy_tensor_groups_agree(zygote: Zygote) -> None:
    assert not Flipped(zygote, 4, "tp", **TENSOR_PARALLEL).found
