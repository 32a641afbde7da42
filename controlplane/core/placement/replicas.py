"""Derive from a job's declared layout how many nodes hold one replica of the model, and which ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.words import some_of
from controlplane.planner.places import PlannedNode, place
from controlplane.planner.shapes import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.core.records.model import JobSpec


def impossible(spec: JobSpec) -> str:
    """Why the layout does not fit the job's nodes, naming the sizes that do not divide; "": it fits."""
    sizes = {
        "--tensor-parallel": spec.tensor_parallel,
        "--pipeline-parallel": spec.pipeline_parallel,
        "--context-parallel": spec.context_parallel,
    }
    for flag, size in sizes.items():
        if size < 1:
            return f"{flag} {size} is not possible: give 1 or more"
    per, ranks = spec.nproc_per_node, spec.replica_ranks
    if per < 1 or spec.replica_nodes < 1 or ranks == 1:
        return ""  # reported by `formation.impossible`, or no layout to check
    if per % spec.tensor_parallel:
        return (
            f"--nproc-per-node {per} is not divisible by --tensor-parallel {spec.tensor_parallel}: "
            "a tensor group stays inside a node"
        )
    words = " x ".join(f"{flag} {size}" for flag, size in sizes.items() if size > 1)
    if per % ranks and ranks % per:
        return f"a replica of {ranks} ranks ({words}) and --nproc-per-node {per}: neither divides the other"
    if spec.replica_nodes != nodes_of(spec):
        return (
            f"--replica-nodes {spec.replica_nodes} is not possible: a replica of {ranks} ranks ({words}) "
            f"takes {nodes_of(spec)} nodes of {per}; leave it out"
        )
    return ""


def nodes_of(spec: JobSpec) -> int:
    """How many nodes one replica of the model takes; `replica_nodes` when no layout is declared."""
    if spec.replica_ranks == 1:
        return spec.replica_nodes
    return max(spec.replica_ranks // max(spec.nproc_per_node, 1), 1)


def arrange(nodes: Sequence[str], replica_nodes: int, domains: Mapping[str, str]) -> list[str]:
    """The nodes in rank order, one whole replica after the other.

    Nodes at the same position of different replicas hold the same shards, so they are spread over the
    failure domains in turn. The given order stays where no domain has two of the nodes."""
    copies = len(nodes) // replica_nodes
    if replica_nodes == 1 or len({domains[node] for node in nodes}) == len(nodes):
        return list(nodes)
    sites = [PlannedNode(node, 1, domains[node]) for node in nodes]
    places = place(Layout(tp=1, pp=replica_nodes, dp=copies), sites)
    return [spot.node for spot in sorted(places, key=lambda spot: (spot.dp, spot.pp))]


def layout_text(spec: JobSpec, nodes: int) -> str:
    """The layout over so many nodes, for people: `tp 2 x pp 4 x dp 3`; "": none is declared."""
    if spec.replica_ranks == 1:
        return ""
    sizes = {"tp": spec.tensor_parallel, "pp": spec.pipeline_parallel, "cp": spec.context_parallel}
    sizes["dp"] = nodes * spec.nproc_per_node // spec.replica_ranks
    return " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1 or axis == "dp")


def shrunk(spec: JobSpec, before: int, left: int, aside: Sequence[str] = ()) -> str:
    """The layout over the `left` nodes, the one over the `before` nodes, and why, for people.

    `aside`: nodes that live, and wait because their replica is not whole."""
    ranks = spec.replica_ranks
    if ranks == 1 and spec.replica_nodes > 1:
        ranks = spec.replica_nodes * spec.nproc_per_node
    now, was = (
        layout_text(spec, nodes) or f"dp {nodes * spec.nproc_per_node // ranks}" for nodes in (left, before)
    )
    why = f"gives way, replicas of {ranks} ranks stay whole" if ranks > 1 else "is its only axis"
    words = f"layout {now}, it was {was}: data parallel {why}"
    if not aside:
        return words
    return (
        f"{words}; {some_of(aside)} {'wait' if len(aside) > 1 else 'waits'}: the rest of the replica is gone"
    )
