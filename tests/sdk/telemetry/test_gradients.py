"""Gradients as they are measured: right numbers, equal on all ranks, and not a bit of the weights changed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from holdfast.data import sampling
from holdfast.errors import SessionError
from holdfast.telemetry import gradient_statistics as statistics
from holdfast.telemetry.gradient_statistics import Watched
from tests.sdk.node import Node
from tests.sdk.telemetry.watched_kinds import BAD, EVERY, KINDS, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("watching.py")
Told = list[dict[str, Any]]


def ran(zygote: Zygote, *, watch: str = "", spoil: str = "") -> tuple[Told, list[Told]]:
    """What each rank has written, and its reports of gradients."""
    with Node(zygote, SCRIPT, 2, WATCH=watch, SPOIL=spoil) as node:
        node.run()
        found = [json.loads((node.folder / f"told.{rank}.json").read_text()) for rank in range(2)]
        said = [[m for m in node.members[name].said if m["op"] == "gradients"] for name in node.seats]
        return found, said


@pytest.fixture(scope="module")
def watched(dcp_zygote: Zygote) -> tuple[Told, list[Told]]:
    return ran(dcp_zygote, watch="on")


def reports(said: Told, kind: str) -> dict[int, dict[str, Any]]:
    first = KINDS.index(kind) * STEPS
    return {each["step"]: each for each in said if first <= each["step"] < first + STEPS}


def test_watching_changes_no_bit_of_the_weights(dcp_zygote: Zygote, watched: tuple[Told, list[Told]]) -> None:
    plain, said = ran(dcp_zygote, watch="off")
    assert said == [[], []]
    for rank in range(2):
        for kind in KINDS:
            assert plain[rank][kind]["digest"] == watched[0][rank][kind]["digest"], kind


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fsdp"])
def test_norms_are_right_and_equal_on_all_ranks(watched: tuple[Told, list[Told]], kind: str) -> None:
    told, said = watched
    first, second = (reports(each, kind) for each in said)
    assert len(first) == STEPS // EVERY and first.keys() == second.keys()
    for step, each in first.items():
        assert each["norm"] == pytest.approx(told[0][kind]["norms"][str(step)], rel=1e-5)
        assert each["norm"] == second[step]["norm"], "DDP has reduced them"
        assert (each["loss_state"], each["samples"], each["sharded"]) == ("known", 4, False)
        if kind not in ("sparse", "accumulated"):
            assert each["local_norm"] > 0.0 and each["local_bad"] == 0


def test_a_clipped_gradient_is_measured_before_it_is_clipped(watched: tuple[Told, list[Told]]) -> None:
    assert all(
        each["norm"] > 0.001 and not each["clipped"] for each in reports(watched[1][0], "clipped").values()
    )


def test_shards_are_said_to_be_and_add_up_to_the_whole(watched: tuple[Told, list[Told]]) -> None:
    told, said = watched
    for step, each in reports(said[0], "fsdp").items():
        other = reports(said[1], "fsdp")[step]
        assert each["sharded"] and other["sharded"] and each["clipped"]
        together = math.hypot(each["norm"], other["norm"])
        assert together == pytest.approx(told[0]["fsdp"]["norms"][str(step)], rel=1e-5)


def test_what_has_no_gradient_is_named_and_what_is_tied_counts_once(watched: tuple[Told, list[Told]]) -> None:
    _, said = watched
    unused = next(iter(reports(said[0], "unused").values()))
    assert "left.weight: it has no gradient" in unused["left_out"] and "frozen" not in unused["left_out"]
    names = {row["name"] for row in next(iter(reports(said[0], "tied").values()))["rows"]}
    assert names == {"bytes.weight", "first.weight", "first.bias", "last.bias"}


def test_a_step_is_left_out_on_all_ranks_alike_and_traced_to_the_module(zygote: Zygote) -> None:
    told, said = ran(zygote, spoil="skip")
    assert told[0]["finite"] and told[0]["digest"] == told[1]["digest"]
    for rank in range(2):
        assert max(each["skipped"] for each in said[rank]) == 3, "the same steps on both"
    traced = [[each for each in said[rank] if each["trace"] == "module"] for rank in range(2)]
    assert traced[0] == [], "the healthy rank has seen nothing in itself"
    assert (traced[1][0]["origin"], traced[1][0]["step"]) == ("first", BAD + 1)
    batch = ", ".join(map(str, sampling.indices(256, (BAD + 1) * 8 + 4, 4, 3).tolist()))
    assert traced[1][0]["words"].endswith(f"although its inputs are (rank 1 has the samples {batch})")
    own = [{each["step"]: each["local_bad"] for each in said[rank]} for rank in range(2)]
    assert (own[0][BAD], own[1][BAD]) == (0, 1)


def test_a_fault_is_reported_where_the_script_wants_a_roll_back(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 2, SPOIL="rollback") as node:
        node.run(lambda: any(member.last("fault") for member in node.members.values()))
        fault = next(found for member in node.members.values() if (found := member.last("fault")))
    assert (fault["kind"], fault["rollback"], fault["step"]) == ("user", True, BAD)
    assert "the gradients are not finite" in fault["reason"]


# ------------------------------------------------------------------ one process


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(seed=None)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("model", "every", "on_nan", "words"),
    [
        ("no model", 1, "report", "no torch.nn.Module"),
        (torch.nn.Linear(1, 1), 0, "report", "every is 0"),
        (torch.nn.Linear(1, 1), True, "report", "every is True"),
        (torch.nn.Linear(1, 1), 1, "pray", "one of report, skip, rollback, stop"),
        (torch.nn.ReLU(), 1, "report", "no parameter"),
    ],
)
def test_a_wrong_argument_is_named(session: Session, model: Any, every: int, on_nan: str, words: str) -> None:
    with pytest.raises(SessionError, match=words):
        session.watch(model, every=every, on_nan=on_nan)


def of(gradient: torch.Tensor) -> torch.nn.Parameter:
    dense = torch.zeros(gradient.shape, dtype=gradient.dtype)
    parameter = torch.nn.Parameter(dense, requires_grad=gradient.is_floating_point() or gradient.is_complex())
    parameter.grad = gradient
    return parameter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_numbers_are_those_of_numpy(dtype: torch.dtype) -> None:
    values = torch.tensor([[3.0, -4.0], [0.0, 0.5]], dtype=dtype)
    (row,) = statistics.measure([values]).tolist()
    found = statistics.measured("w", 4, row)
    plain = values.double().numpy()
    assert found.norm == pytest.approx(float((plain**2).sum() ** 0.5), rel=1e-6)
    assert found.deviation == pytest.approx(float(plain.std()), rel=1e-5)
    assert (found.mean, found.least, found.most, found.zeros) == (-0.125, -4.0, 3.0, 1)
    assert found.finite


def test_nan_and_inf_are_counted_apart() -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, 1.0, 0.0])
    (row,) = statistics.measure([values]).tolist()
    found = statistics.measured("w", 5, row)
    assert (found.nans, found.infs, found.zeros, found.finite) == (1, 2, 1, False)
    assert not bool(statistics.all_finite([torch.ones(2), values]))
    assert bool(statistics.all_finite([torch.ones(2), torch.zeros(3, dtype=torch.float16)]))


def test_odd_gradients_are_measured_by_what_they_have_or_left_out_by_name() -> None:
    with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
        sparse = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.ones(2, 3), (4, 3))
    values, why = statistics.values_of(Watched("w", of(sparse)))
    assert why == "" and values is not None and values.tolist() == [[2.0, 2.0, 2.0]]
    values, why = statistics.values_of(Watched("w", of(torch.tensor([1.0 + 2.0j]))))
    assert why == "" and values is not None and values.tolist() == [[1.0, 2.0]]
    for gradient, words in (
        (torch.zeros(0), "empty"),
        (torch.ones(2, dtype=torch.int32), "torch.int32"),
    ):
        values, why = statistics.values_of(Watched("w", of(gradient)))
        assert values is None and words in why
    assert "no gradient" in statistics.values_of(Watched("w", torch.nn.Parameter(torch.ones(1))))[1]
