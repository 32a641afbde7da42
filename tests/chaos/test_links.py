"""A link that the kernel throttles is found while the job trains, and only its node is named.

Hosts are namespaces, and the link is slowed by `tc tbf` on the host's card: agents, ranks and coordinators
know nothing of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.local import network_spaces
from tests.chaos import hosts
from tests.chaos.cluster import NODES, Cluster, until
from tests.chaos.test_chaos import folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(hosts.missing()), reason=f"no namespaces: {hosts.missing()}"),
]
SCRIPT = os.path.abspath(Path(__file__).with_name("broad.py"))
RATE = "40mbit"
FOUND_S = 240.0
BEFORE = 8  # windows that were judged before the link is slowed
KINDS = ("slow_link", "slow_node_network", "slow_network")
ASKED_S = 1.0  # the pause between two answers: each is a process, and the leader judges once a second
BUSY = 20  # answers that nodes are too busy to judge their links, after which nobody waits any longer
NOT_CALM = ("crowded", "slow_alone", "too_few_links")


def asked(cluster: Cluster, job: str) -> dict[str, Any]:
    """What the diagnosis says of a job; {} while it cannot be asked."""
    done = cluster.holdfast("doctor", job, "--json")
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def test_a_throttled_node_is_told_apart_from_a_slow_rank() -> None:
    with folder() as path, Cluster(path, diagnose_every_s=1.0) as cluster:
        cluster.submit("broad", (SCRIPT, "100000"), "--nnodes", "4", "--nproc-per-node", "1")
        judged = 0

        def trains() -> bool:
            nonlocal judged
            judged += bool(asked(cluster, "broad").get("anatomy", {}).get("judged"))
            return judged >= BEFORE

        until(trains, lambda: f"the job trains and is judged; logs are in {path}", FOUND_S, ASKED_S)
        before = asked(cluster, "broad")
        assert not [row for row in before["findings"] if "link" in row["kind"] or "network" in row["kind"]]
        healthy = {node for node in NODES if node != "n1"}
        network_spaces.slow(cluster["n1"], RATE)

        told: dict[str, Any] = {}
        busy = 0

        def links(kinds: tuple[str, ...]) -> list[dict[str, Any]]:
            return [row for row in told.get("findings", []) if row["kind"] in kinds]

        def answered() -> bool:
            """Whether this answer names a node's network; all assertions below are about the same answer."""
            nonlocal told, busy
            told = asked(cluster, "broad")
            assert not [row for row in links(KINDS) if row["subject"].get("node") in healthy], told
            busy += told.get("links", {}).get("code") in NOT_CALM
            return bool(links(("slow_node_network",))) or busy >= BUSY

        until(answered, lambda: f"a slow link is found; {told}", FOUND_S, ASKED_S)
        if not links(("slow_node_network",)):
            pytest.skip(f"this machine does too much else to judge links: {told['links']['unknown']}")
        rows = links(("slow_node_network",))
        print(json.dumps(told["findings"], indent=1))
        assert [row["subject"]["node"] for row in rows] == ["n1"]
        assert rows[0]["evidence"]["link_ratio"] > 2
        assert not [row for row in told["findings"] if row["subject"].get("node") in healthy]
        network_spaces.quick(cluster["n1"])

        def resolved() -> bool:
            nonlocal told
            told = asked(cluster, "broad")
            return "findings" in told and not links(KINDS)

        until(resolved, lambda: f"the finding is resolved; {told}", FOUND_S, ASKED_S)
