"""Measure one leader with thousands of agents' real streams, real etcd and a standby beside it.

`python -m benchmarks.scale --nodes 10000 --json`; docs of each value: benchmarks/README.md. The fleet trains
already: etcd has what a leader before has left there. The agents speak the wire and are nothing else; their
processes' CPU is reported apart. A grpc.aio server that drops the same messages is the limit, in the same
run."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.coordinators import running, until
from benchmarks.load import LoadMeter
from benchmarks.page import scraped
from benchmarks.report import show
from benchmarks.scale import process
from benchmarks.scale.certificates import Certificates
from benchmarks.scale.generators import Generators
from benchmarks.scale.seeding import seed
from benchmarks.scale.shape import NODES_PER_JOB, RANKS, Fleet, job_of, name_of
from controlplane.daemon.leadership.welcoming import beat_interval_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.coordinators import Cluster

CLUSTER = "scale"
NODE_TIMEOUT_S = 30.0
ATTACHED_TIMEOUT_S = 600.0
SETTLE_S = 15.0
"""After all have attached, until the load is that of a steady state."""
JUDGED_TIMEOUT_S = 60.0
BETWEEN_DEATHS_S = 1.0
FLAGS = (f"--cluster={CLUSTER}", f"--node-timeout-s={NODE_TIMEOUT_S}", "--journal-bytes=0")


def progress(found: dict[str, Any]) -> dict[str, Any]:
    """Tell on standard error what has been measured: a run at ten thousand nodes takes minutes."""
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def storm(fleet: Fleet, agents: Generators) -> float:
    """Have all agents connect at once. Returns how long it takes until all are attached, in s."""
    agents.stats()  # their processes have started
    begun = time.monotonic()
    agents.tell("connect")
    attached(fleet, agents)
    return time.monotonic() - begun


def attached(fleet: Fleet, agents: Generators) -> None:
    """Wait until all agents are. Raises SystemExit, with what has kept them, when they are not in time."""
    deadline = time.monotonic() + ATTACHED_TIMEOUT_S
    while (now := agents.stats()).attached < fleet.nodes:
        if time.monotonic() > deadline:
            raise SystemExit(f"{now.attached} of {fleet.nodes} agents are attached: {dict(now.ends)}")
        time.sleep(0.2)


def steady(pid: int, agents: Generators, seconds: float) -> dict[str, float]:
    """What a server costs while agents only beat: cores, and microseconds of CPU per beat."""
    time.sleep(SETTLE_S)
    before, cpu_s, begun = agents.stats(), process.cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    after, spent_s, took_s = agents.stats(), process.cpu_s(pid) - cpu_s, time.monotonic() - begun
    beats = after.beats - before.beats
    return {
        "cores": round(spent_s / took_s, 4),
        "beat_us": round(1e6 * spent_s / max(beats, 1), 1),
        "beats_per_s": round(beats / took_s, 1),
        "agents_cores": round((after.cpu_s - before.cpu_s) / took_s, 3),
        "relays_cores": round((after.relays_cpu_s - before.relays_cpu_s) / took_s, 3),
        "relayed_share": round((after.relayed - before.relayed) / max(beats, 1), 3),
    }


@contextlib.contextmanager
def bare_server(tls: Certificates | None) -> Iterator[tuple[int, str]]:
    """The limit: its pid, and its address."""
    argv = [sys.executable, "-m", "benchmarks.scale.bare", json.dumps(asdict(tls) if tls else None)]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    try:
        yield server.pid, server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
        server.stdin.close()
        server.stdout.close()


def flags_of(fleet: Fleet) -> tuple[str, ...]:
    """The coordinator's flags: heartbeats take the way that the fleet can."""
    return (*FLAGS, f"--relay-beats-from={1 if fleet.relays else 0}")


def limit(fleet: Fleet, generators: int, seconds: float, tls: Certificates | None) -> dict[str, Any]:
    """The same agents and messages against the bare server, as often as a coordinator asks for them."""
    interval_s = beat_interval_s(fleet.nodes, NODE_TIMEOUT_S)
    with (
        bare_server(tls) as (pid, address),
        Generators(fleet, generators, (address,), CLUSTER, interval_s, tls=tls) as agents,
    ):
        storm_s = storm(fleet, agents)
        found = steady(pid, agents, seconds)
        return found | {"storm_s": round(storm_s, 2), "memory_bytes": process.memory_bytes(pid)}


def leader_of(cluster: Cluster) -> int:
    """The place of the leader among the coordinators: the one that has used more CPU."""
    spent = [process.cpu_s(each.pid) if each.poll() is None else -1.0 for each in cluster.leaders]
    return spent.index(max(spent))


def led(fleet: Fleet, generators: int, seconds: float, tls: Certificates | None) -> dict[str, Any]:
    """A leader with the fleet: connections, steady state, a change of leader, lost nodes, dead ranks.

    The dead ranks come last: these agents obey no orders, so each job that a rank has died of is sent the
    same orders again and again."""

    def left(endpoint: str) -> None:
        asyncio.run(seed(endpoint, CLUSTER, fleet))

    with running(left, (*flags_of(fleet), *(tls.flags() if tls else ()))) as cluster:
        addresses = tuple(cluster.addresses.split(","))
        with Generators(fleet, generators, addresses, CLUSTER, None, tls=tls) as agents:
            found = progress({"storm_s": round(storm(fleet, agents), 2)})
            found |= progress({"steady": steady(cluster.leaders[leader_of(cluster)].pid, agents, seconds)})
            found |= progress(_looked_at(cluster))
            found |= progress({"takeover_s": round(_change_of_leader(fleet, cluster, agents), 2)})
            after = steady(cluster.leaders[leader_of(cluster)].pid, agents, seconds)
            found |= progress({"steady_after": after})
            found |= progress(_lost_nodes(fleet, cluster, agents))
            found |= progress(_dead_ranks(fleet, cluster, agents))
            found |= {"orders": dict(agents.stats().orders), "ends": dict(agents.stats().ends)}
            found["terms"] = sum(row["body"]["kind"] == "elected" for row in cluster.journalled("Note"))
        return found


def _looked_at(cluster: Cluster) -> dict[str, Any]:
    place = leader_of(cluster)
    addresses = json.loads(cluster.address_file(cluster.ports[place]).read_text())
    port = int(addresses["metrics"].rpartition(":")[2])
    return {"memory_bytes": process.memory_bytes(cluster.leaders[place].pid)} | scraped(port)


def _change_of_leader(fleet: Fleet, cluster: Cluster, agents: Generators) -> float:
    """Kill the leader. Returns how long it takes until the other coordinator has all agents, in s."""
    begun = time.monotonic()
    dead = cluster.leaders[leader_of(cluster)]
    dead.kill()
    dead.wait()
    until(lambda: agents.stats().attached < fleet.nodes, ATTACHED_TIMEOUT_S)
    attached(fleet, agents)
    return time.monotonic() - begun


def _dead_ranks(fleet: Fleet, cluster: Cluster, agents: Generators) -> dict[str, Any]:
    """A rank dies in each of the first tenth of the jobs, one after the other: how long until each is judged,
    in s."""
    struck = [job * NODES_PER_JOB for job in range(max(1, fleet.jobs // 10))]
    at: dict[str, float] = {}
    for node in struck:
        at |= {name: when for answer in agents.tell("kill", str(node)) for name, when in answer["at"].items()}
        time.sleep(BETWEEN_DEATHS_S)
    of_job = {job_of(node): at[name_of(node)] for node in struck}
    deadline = time.monotonic() + JUDGED_TIMEOUT_S
    while len(waits := _judged(cluster, of_job)) < len(of_job) and time.monotonic() < deadline:
        time.sleep(0.5)
    spent = sorted(waits.values())
    return {
        "ranks_killed": len(of_job),
        "ranks_judged": len(spent),
        "judged_median_s": round(spent[len(spent) // 2], 3) if spent else None,
        "judged_worst_s": round(spent[-1], 3) if spent else None,
    }


def _judged(cluster: Cluster, of_job: dict[str, float]) -> dict[str, float]:
    """By job: the time from the moment at which its rank was reported dead until a verdict, in s."""
    found: dict[str, float] = {}
    for row in cluster.journalled("Judged"):
        job = row["body"]["verdict"]["job"]
        if job in of_job and row["monotonic_s"] >= of_job[job]:
            found.setdefault(job, row["monotonic_s"] - of_job[job])
    return found


def _lost_nodes(fleet: Fleet, cluster: Cluster, agents: Generators) -> dict[str, Any]:
    """One in a hundred nodes vanishes, all in the same moment: how long until all count as lost, in s.

    `wrong_verdicts`: nodes that count as lost and are not, from the beginning of the run on."""
    gone = {name_of(node): node for node in range(fleet.nodes - max(1, fleet.nodes // 100), fleet.nodes)}
    begun = time.monotonic()
    agents.tell("lose", *map(str, gone.values()))
    deadline = begun + NODE_TIMEOUT_S + JUDGED_TIMEOUT_S
    lost: list[tuple[str, float]] = []
    late: list[float] = []
    while len(late) < len(gone) and time.monotonic() < deadline:
        time.sleep(0.5)
        lost = _lost(cluster)
        late = [when - begun for name, when in lost if name in gone and when > begun]
    wrong = {name for name, when in lost if name not in gone or when <= begun}
    return {
        "nodes_lost": len(gone),
        "nodes_noticed": len(late),
        "noticed_worst_s": round(max(late), 2) if late else None,
        "node_timeout_s": NODE_TIMEOUT_S,
        "wrong_verdicts": len(wrong),
    }


def _lost(cluster: Cluster) -> list[tuple[str, float]]:
    """Each node that has counted as lost, and when (s, CLOCK_MONOTONIC)."""
    notes = [row for row in cluster.journalled("Note") if row["body"]["kind"] == "node_lost"]
    return [(row["body"]["subject"], row["monotonic_s"]) for row in notes]


def measure(
    nodes: int, generators: int, seconds: float, *, mtls: bool = False, direct: bool = False
) -> dict[str, Any]:
    """Measure everything, by the names in README.md. Relays of this benchmark speak plaintext only."""
    fleet, load = Fleet(nodes, relays=not (mtls or direct)), LoadMeter()
    with tempfile.TemporaryDirectory() as folder:
        tls = Certificates.made(Path(folder), CLUSTER) if mtls else None
        bare = progress(limit(Fleet(nodes), generators, seconds, tls))
        load.sample()
        found = led(fleet, generators, seconds, tls)
        load.sample()
    ratios = {
        "beat_ratio": round(found["steady"]["beat_us"] / bare["beat_us"], 2),
        "storm_ratio": round(found["storm_s"] / bare["storm_s"], 2),
    }
    shape = {"nodes": nodes, "ranks": nodes * RANKS, "jobs": fleet.jobs, "mtls": mtls}
    shape |= {"relays": len(fleet.relay_numbers)}
    return shape | {"bare": bare} | found | ratios | {"load": load.result()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    parser.add_argument("--nodes", type=int, default=1000, help=f"of {RANKS} ranks each (default: 1000)")
    parser.add_argument("--mtls", action="store_true", help="encrypt; both sides show certificates")
    parser.add_argument("--direct", action="store_true", help="no heartbeat goes through another agent")
    parser.add_argument("--generators", type=int, default=2, help="processes of agents (default: 2)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each steady state (default: 30)")
    values = parser.parse_args()
    found = measure(values.nodes, values.generators, values.seconds, mtls=values.mtls, direct=values.direct)
    show(found, as_json=values.json)


if __name__ == "__main__":
    main()
