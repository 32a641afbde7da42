"""The layout of a job over its nodes: whole replicas, copies of a shard far from each other, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core.placement import formation, replicas
from controlplane.planner.places import DevicePlace, PlannedNode, shared_domains
from holdfast.coordinates import Coordinates, read
from tests.core.make import spec

if TYPE_CHECKING:
    from controlplane.core.records.model import JobSpec


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"tensor_parallel": 0}, "--tensor-parallel 0 is not possible"),
        (
            {"nproc_per_node": 4, "tensor_parallel": 3},
            "--nproc-per-node 4 is not divisible by --tensor-parallel 3",
        ),
        (
            {"nproc_per_node": 4, "tensor_parallel": 2, "pipeline_parallel": 3, "nnodes_max": 6},
            "a replica of 6 ranks (--tensor-parallel 2 x --pipeline-parallel 3) and --nproc-per-node 4",
        ),
        (
            {"nproc_per_node": 4, "tensor_parallel": 4, "pipeline_parallel": 2, "nnodes_max": 6},
            "takes 2 nodes of 4",
        ),
        (
            {"nproc_per_node": 4, "tensor_parallel": 4, "pipeline_parallel": 4, "replica_nodes": 4},
            "holds no multiple of --replica-nodes 4",
        ),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_is_refused_by_the_divisor_that_fails(
    flags: dict[str, int], words: str
) -> None:
    assert words in formation.impossible(spec(**flags))


def test_what_divides_is_taken() -> None:
    for tp, pp, per, nodes in ((2, 1, 8, 1), (8, 4, 8, 4), (1, 3, 1, 3), (4, 2, 8, 1), (1, 1, 5, 1)):
        job = spec(tensor_parallel=tp, pipeline_parallel=pp, nproc_per_node=per, nnodes_max=8)
        job = spec(
            tensor_parallel=tp, pipeline_parallel=pp, nproc_per_node=per, nnodes_max=8,
            replica_nodes=replicas.nodes_of(job),
        )  # fmt: skip
        assert formation.impossible(job) == ""
        assert job.replica_nodes == nodes


def places_of(job: JobSpec, nodes: list[str]) -> list[DevicePlace]:
    """Every rank's coordinates and node, as the ranks are told them."""
    names = [f"m{index}" for index in range(len(nodes) * job.nproc_per_node)]
    seats = formation.layout(job, nodes, names)
    told = [Coordinates(seat.rank, len(seats), job.tensor_parallel, job.pipeline_parallel) for seat in seats]
    return [
        DevicePlace(seat.rank, at.tp_rank, at.cp_rank, at.dp_rank, at.pp_rank, seat.node, seat.local_rank)
        for seat, at in zip(seats, told, strict=True)
    ]


def test_the_copies_of_a_shard_lie_in_different_racks_and_tensor_groups_inside_nodes() -> None:
    """8 nodes in 4 racks, two nodes hold a replica: however the nodes are named."""
    job = spec(
        tensor_parallel=2, pipeline_parallel=4, nproc_per_node=4, nnodes_min=8, nnodes_max=8, replica_nodes=2
    )
    racks = {f"n{index}": f"rack{index // 2}" for index in range(8)}
    nodes = replicas.arrange(sorted(racks), 2, racks)
    places = places_of(job, nodes)
    assert shared_domains(places, [PlannedNode(name, 4, rack) for name, rack in racks.items()]) == 0
    for at in range(0, len(places), 2):
        assert places[at].node == places[at + 1].node, "a tensor group"
        assert (places[at].tp, places[at + 1].tp) == (0, 1)
    assert all({p.node for p in places if p.dp == dp} == set(nodes[2 * dp : 2 * dp + 2]) for dp in range(4))


def test_where_nothing_fails_together_the_nodes_keep_their_order() -> None:
    nodes = ["b", "a", "d", "c"]
    assert replicas.arrange(nodes, 2, {name: name for name in nodes}) == nodes
    assert replicas.arrange(nodes, 1, dict.fromkeys(nodes, "rack")) == nodes


def test_coordinates_name_every_place_once_and_shrinking_drops_whole_replicas() -> None:
    told = [Coordinates(rank, 24, tp=2, pp=3, cp=2) for rank in range(24)]
    assert {at.place for at in told} == {
        (dp, pp, cp, tp) for dp in range(2) for pp in range(3) for cp in range(2) for tp in range(2)
    }
    assert [at.dp_rank for at in told] == [0] * 12 + [1] * 12
    left = [Coordinates(rank, 12, tp=2, pp=3, cp=2) for rank in range(12)]
    assert [at.place for at in left] == [at.place for at in told[:12]]
    variables = told[17].variables()
    assert variables["HOLDFAST_DP_RANK"] == "1" and variables["HOLDFAST_PP_SIZE"] == "3"
    assert read(variables, 17, 24) == told[17]
    assert set(Coordinates(-1, 4, tp=2).variables().values()) == {"-1", "2", "1"}


def test_a_shrunken_layout_of_16384_devices() -> None:
    """2048 nodes in racks of 16, a replica on 16 of them; 40 nodes are lost."""
    racks = {f"n{index:04}": f"rack{index // 16}" for index in range(2048)}
    job = spec(
        tensor_parallel=8, pipeline_parallel=16, nproc_per_node=8, nnodes_min=16, nnodes_max=2048,
        replica_nodes=16,
    )  # fmt: skip
    nodes = replicas.arrange(sorted(racks), 16, racks)
    assert [racks[node] for node in nodes] != sorted(racks.values()), "a rack's loss costs no shard"
    gone = [f"n{index:04}" for index in range(0, 2048, 52)]
    left = formation.whole_replicas(nodes, 16, gone)
    assert len(left) % 16 == 0 and not set(left) & set(gone)
    holes = [nodes.index(node) % 16 for node in gone]
    assert len(left) // 16 == 128 - max(map(holes.count, holes)), "holes in one place each cost a replica"
    assert [nodes.index(node) % 16 for node in left] == [*range(16)] * (len(left) // 16)
    assert replicas.layout_text(job, len(left)) == f"tp 8 x pp 16 x dp {len(left) // 16}"


@pytest.mark.parametrize(
    ("flags", "before", "left", "aside", "words"),
    [
        ({}, 3, 2, (), "layout dp 2, it was dp 3: data parallel is its only axis"),
        (
            {"nproc_per_node": 2, "tensor_parallel": 2}, 3, 2, (),
            "layout tp 2 x dp 2, it was tp 2 x dp 3: data parallel gives way, replicas of 2 ranks stay whole",
        ),
        (
            {"nproc_per_node": 2, "tensor_parallel": 2, "pipeline_parallel": 2, "replica_nodes": 2},
            4, 2, ("d",),
            "layout tp 2 x pp 2 x dp 1, it was tp 2 x pp 2 x dp 2: data parallel gives way, "
            "replicas of 4 ranks stay whole; d waits: the rest of the replica is gone",
        ),
        (
            {"nproc_per_node": 8, "replica_nodes": 16}, 64, 48, tuple(f"n{at}" for at in range(10)),
            "layout dp 3, it was dp 4: data parallel gives way, replicas of 128 ranks stay whole; "
            "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more wait: the rest of the replica is gone",
        ),
    ],
)  # fmt: skip
def test_the_layout_that_is_left_is_told_with_its_reason(
    flags: dict[str, int], before: int, left: int, aside: tuple[str, ...], words: str
) -> None:
    assert replicas.shrunk(spec(**flags), before, left, aside) == words
