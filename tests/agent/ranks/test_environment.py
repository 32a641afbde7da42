"""The environment that a rank's process starts with."""

from __future__ import annotations

from typing import Any

import pytest

from agent.ranks.environment import NodeFacts, environment
from controlplane.core.records.model import NO_RANK, Placement, Role
from holdfast.environment import Environment
from tests.agent.support import generation, launch, spec

FACTS = NodeFacts("b", "10.0.0.2", "/run/gate.sock", "/ledger")


def test_ranks_of_two_nodes_know_their_place() -> None:
    job = spec("x.py", nproc_per_node=2, nnodes_max=2)
    seats = tuple(Placement(rank, f"job.{rank}", "ab"[rank // 2], rank % 2) for rank in range(4))
    two = generation(3)
    two = type(two)(two.job, 3, 1, seats, "", "10.0.0.1:777", two.resume, "", restarts=2)
    env = environment({"KEEP": "1"}, launch("job.3", job, 3, local_rank=1, generation=two), FACTS, "/b")
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    values = [env[name] for name in names.split()]
    assert values == ["3", "1", "4", "2", "1", "2", "10.0.0.1", "777"]
    assert env["TORCHELASTIC_RESTART_COUNT"] == "2"
    assert (env["KEEP"], env["HOLDFAST_LEDGER"], env["HOLDFAST_ADDRESS"]) == ("1", "/ledger", "10.0.0.2")


@pytest.mark.parametrize(
    ("fields", "switch", "release", "anchor"),
    [
        ({"nnodes_max": 1}, "on", "ranks", "off"),
        ({"nnodes_max": 2}, "off", "coordinator", "auto"),  # the default is one copy on another node
        ({"nnodes_max": 2, "snapshot_auto": False}, "off", "coordinator", "on"),
        ({"nnodes_max": 2, "replicas": 0}, "on", "ranks", "off"),
        ({"nnodes_max": 1, "snapshot_auto": False}, "off", "ranks", "off"),
    ],
)
def test_an_sdk_that_keeps_no_step_for_other_nodes_leaves_it_to_the_coordinator(
    fields: dict[str, Any], switch: str, release: str, anchor: str
) -> None:
    job = spec("x.py", **{"snapshot_auto": True, **fields})
    order = launch("job.9", job, NO_RANK, role=Role.SPARE, generation=None)
    env = environment({}, order, FACTS, "/b")
    told = [env[f"HOLDFAST_SNAPSHOT_{name}"] for name in ("AUTO", "RELEASE", "ANCHOR")]
    assert told == [switch, release, anchor]
    read = Environment.read(env | {"HOLDFAST_GATE": ""})
    assert read.ranks_release and read.snapshot_auto is job.snapshot_auto


def test_a_spare_has_no_rank() -> None:
    job = spec("x.py", nproc_per_node=2)
    order = launch("job.9", job, NO_RANK, role=Role.SPARE, generation=None)
    env = environment({"OMP_NUM_THREADS": "4"}, order, FACTS, "/b")
    assert (env["RANK"], env["LOCAL_RANK"], env["HOLDFAST_ROLE"]) == ("-1", "-1", "spare")
    assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["OMP_NUM_THREADS"]) == ("2", "2", "4")
