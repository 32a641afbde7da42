"""What `holdfast profile` takes and shows."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from controlplane.cli.flags.ranks import rank_list
from controlplane.cli.main import tree
from controlplane.cli.questions.profile import row, text
from controlplane.daemon.server.admin import PROFILED_MAX, profile_refusal
from controlplane.wire import control_pb2 as pb

ranks = rank_list(PROFILED_MAX)


def reply(**more: Any) -> pb.ProfileReply:
    found = pb.Profiled(job="j", member="j.4", request="7-1", generation=2, **more)
    return pb.ProfileReply(node="n1", rank=3, profiled=found)


def whole(device_s: float) -> pb.ProfileReply:
    operators = [
        pb.OperatorTime(name="aten::mm", calls=6, cpu_s=0.001, device_s=device_s),
        pb.OperatorTime(name="aten::add", calls=12, cpu_s=2.0),
    ]
    return reply(
        path="/logs/j.4.profile-7-1.json.gz",
        bytes=2048,
        first_step=10,
        steps=3,
        cpu_s=4.0,
        device_s=device_s * 2,
        operators=operators,
    )


@pytest.mark.parametrize(
    ("words", "found"), [("0", (0,)), ("3,0,3", (0, 3)), ("0-3", (0, 1, 2, 3)), ("8-9, 1", (1, 8, 9))]
)
def test_ranks(words: str, found: tuple[int, ...]) -> None:
    assert ranks(words) == found


@pytest.mark.parametrize("words", ["", "x", "-1", "1-", "3-1", "0-16", "0-9,20-29", "1;2", "٣", "9" * 30])
def test_what_is_no_rank_is_named(words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="rank"):
        ranks(words)


def test_the_defaults_are_one_rank_and_five_steps() -> None:
    values = tree().parse_args(["profile", "j"])
    assert (values.ranks, values.steps, values.timeout_s, values.json) == ((0,), 5, 300, False)


def test_a_table_without_a_device_has_shares_of_the_cpu_time() -> None:
    found = row(whole(0.0))
    assert [each["share"] for each in found["operators"]] == [0.00025, 0.5]
    lines = text(found).splitlines()
    assert lines[0] == "rank 3 on n1: steps 10 to 12, 2.0 KiB: /logs/j.4.profile-7-1.json.gz"
    assert lines[1].split() == ["SHARE", "ON", "CPU", "CALLS", "OPERATOR"]
    assert lines[2].split() == ["0.0%", "1.00", "ms", "6", "aten::mm"]


def test_with_a_device_the_shares_are_of_its_time() -> None:
    found = row(whole(0.5))
    assert [each["share"] for each in found["operators"]] == [0.5, 0.0]
    assert text(found).splitlines()[1].split()[:3] == ["SHARE", "ON", "DEVICE"]


def test_reasons_are_shown() -> None:
    assert text(row(reply(reason="gone"))) == "rank 3 on n1: no profile: gone"
    assert "no table of 9" in text(row(reply(path="/x", no_table="no table of 9 events")))
    assert row(reply(reason="gone"))["operators"] == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 51}, "give 1 to 50"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"timeout_s": 1e9}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"ranks": []}, "give 1 to 16"),
        ({"ranks": range(17)}, "give 1 to 16"),
        ({"ranks": [-1]}, "ranks"),
    ],
)
def test_the_leader_checks_again(changes: dict[str, Any], reason: str) -> None:
    asked: dict[str, Any] = {"job": "j", "ranks": [0], "steps": 5, "timeout_s": 60.0}
    assert profile_refusal(pb.ProfileRequest(**asked)) == ""
    assert reason in profile_refusal(pb.ProfileRequest(**(asked | changes)))


def test_small_kernels_are_named_below_the_table_and_are_unknown_without_numbers() -> None:
    operators = [
        pb.OperatorTime(name="aten::add", calls=4000, cpu_s=0.5, device_s=0.012),
        pb.OperatorTime(name="aten::mm", calls=100, cpu_s=0.1, device_s=0.003),
    ]
    whole = reply(path="/t", bytes=9, steps=3, cpu_s=0.6, device_s=0.015, operators=operators)
    found = row(whole)
    assert found["small_kernels"]["small"] is True
    assert "small kernels: 4100 operators took 3.66 us each on the device" in text(found)
    assert row(whole, small_us=2.0)["small_kernels"]["small"] is False
    few = reply(path="/t", bytes=9, steps=3, cpu_s=0.6, device_s=0.015, operators=operators[1:])
    assert row(few)["small_kernels"]["small"] is None
    assert "small kernels: unknown: the operators listed have only 20% of the device's time" in text(row(few))
    assert row(reply(path="/t", cpu_s=0.6))["small_kernels"] == {
        "small": None,
        "reason": "the profile has no time on a device",
        "recommendation": "",
        "gain_ratio": None,
    }
