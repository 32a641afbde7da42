"""The diagnosis of a running job, tried on real processes: who is named, wherever the fault is planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from controlplane.cli.local.network_spaces import missing
from tests.exhaustive import all_but

CPUS = len(os.sched_getaffinity(0))
NOT_CALM = ("crowded", "slow_alone", "too_few_rounds", "too_few_links")
"""Why links are not judged on a machine that does too much else."""


def diagnosed(*words: str) -> dict[str, Any]:
    """What the demo says, its exit code checked."""
    command = [sys.executable, "-P", "-m", "controlplane", "demo", "--doctor", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["failed_detectors"] == [] and result["answers_judged"] > 0, done.stderr
    return result


@pytest.mark.slow
@pytest.mark.parametrize("rank", all_but(1, [3, 0]))
def test_a_slowed_process_is_named_whichever_rank_it_is(rank: int) -> None:
    result = diagnosed("--plant", f"slow=rank:{rank},at:30,factor:4,seed:1")
    assert rank in {found["subject"].get("rank") for found in result["findings"]}, result
    assert result["accused_healthy"] == [], result


@pytest.mark.slow
@pytest.mark.parametrize("watch_s", all_but(1, [20, 45]))
def test_a_healthy_job_accuses_nobody(watch_s: int) -> None:
    result = diagnosed("--plant", "none", "--watch-s", str(watch_s))
    assert result["accused_healthy"] == [], result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "kind", "rank"),
    [
        ("skipped-collective", "other_order", 1),
        pytest.param("wrong-shape", "other_shape", 2, marks=pytest.mark.exhaustive),
    ],
)
def test_who_calls_something_else_is_named_and_nobody_else(plant: str, kind: str, rank: int) -> None:
    result = diagnosed("--plant", f"{plant}=rank:{rank},at:30", "--watch-s", "30")
    named = {(found["kind"], found["subject"].get("rank")) for found in result["findings"]}
    assert (kind, rank) in named, result
    assert result["accused_healthy"] == [], result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "kind", "watch_s"),
    [
        ("stuck-loader", "slow_data", 45),
        pytest.param("nan", "non_finite", 30, marks=pytest.mark.exhaustive),
        pytest.param("leak", "memory_leak", 90, marks=pytest.mark.exhaustive),
    ],
)
def test_a_rank_with_a_fault_of_its_own_is_named_and_nobody_else(plant: str, kind: str, watch_s: int) -> None:
    result = diagnosed("--plant", f"{plant}=rank:1,at:30", "--watch-s", str(watch_s))
    named = {(found["kind"], found["subject"].get("rank")) for found in result["findings"]}
    assert (kind, 1) in named, result
    assert result["accused_healthy"] == [], result
    if kind == "non_finite":
        reasons = [found["reason"] for found in result["findings"] if found["kind"] == kind]
        assert any("(rank 1 has the samples " in reason for reason in reasons), "with its batch"


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("plant", ["imbalance", "last-stage"])
def test_what_is_the_fault_of_no_rank_accuses_none(plant: str) -> None:
    result = diagnosed("--plant", f"{plant}=at:30")
    assert result["planted"][0]["planted_at_s"] > 0 and result["accused_healthy"] == [], result


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=f"no networks: {missing()}")
@pytest.mark.skipif(
    CPUS < 8, reason=f"{CPUS} CPUs: four nodes that train and probe on fewer than 8 measure each other"
)
@pytest.mark.parametrize("rank", [0, 2])
def test_the_node_whose_cable_is_slow_is_named_and_no_other(rank: int) -> None:
    result = diagnosed("--plant", f"slow-link=rank:{rank},at:20,factor:8,seed:1")
    network = ("slow_node_network", "slow_link", "slow_network")
    named = [found for found in result["findings"] if found["kind"] in network]
    accused = {each["rank"] for each in result["accused_healthy"] if each["kind"] in network}
    assert accused == set(), result
    if not named and result["links_code"] in NOT_CALM:
        pytest.skip(f"this machine does too much else to judge links: {result['links_unknown']}")
    assert [(found["kind"], found["subject"]["node"]) for found in named] == [
        ("slow_node_network", f"n{rank}")
    ], result
    assert named[0]["first_found_s"] > 0 and result["planted"][0]["planted_at_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("rank", [2])
def test_a_flipped_bit_is_found_at_the_next_check(rank: int) -> None:
    result = diagnosed("--plant", f"bitflip=rank:{rank},at:35,seed:{rank}", "--watch-s", "30")
    (found,) = [each for each in result["findings"] if each["kind"] == "corrupt_state"]
    assert found["subject"]["rank"] == rank and found["severity"] == "critical"
    (incident,) = result["incidents"]
    assert incident["rank"] == rank and incident["step"] % 10 == 0 and incident["lost_steps"] <= 10
    # Other tests on the same CPUs may slow a rank down for real; none may be said to hold corrupt state.
    assert "corrupt_state" not in {each["kind"] for each in result["accused_healthy"]}, result
