"""Measure what link probes cost a training step: two ranks over gloo, with and without probes, by turns.

`python -m benchmarks.diagnosis.probe_cost` prints one line of JSON. Turns alternate within one run, so both
sides meet the same machine. Probes follow each other every `--every-s` seconds: far more often than the
leader ever asks (`controlplane.analysis.links.policy.ROUND_REST_S`), so the ratio is scaled to that as well.
Agents and ranks share the processors of one machine here, which on real nodes they do less."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

from agent.links.prober import LinkProber
from controlplane.access.client_credentials import plain
from controlplane.analysis.links import policy
from controlplane.core.records.diagnosis import LinksProbed, ProbeLinks
from controlplane.core.records.model import PeerAddress
from tests.agent.peering import Side
from tests.agent.support import until

if TYPE_CHECKING:
    from agent.peers.service import Peers

RANK = """
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
weights, gradient = torch.randn(256, 256), torch.randn(1 << 19)
while True:
    for _ in range(20):
        weights @ weights
    dist.all_reduce(gradient)
    if rank == 0:
        print(time.monotonic(), flush=True)
"""


async def _probe(peers: dict[str, Peers], links: LinkProber, answers: list[LinksProbed], turn: int) -> None:
    addresses = tuple(PeerAddress(name, each.address) for name, each in peers.items())
    before = len(answers)
    links.order(ProbeLinks("a", "job", turn, addresses, policy.SLOT_S, policy.BURST_BYTES, policy.BURST_S))
    await until(lambda: len(answers) > before, "the answer to a probe")


async def _measure(
    folder: Path, ranks: list[subprocess.Popen[str]], wish: argparse.Namespace
) -> dict[str, float]:
    times: list[float] = []
    spans: list[tuple[float, float, bool]] = []
    answers: list[LinksProbed] = []
    cpu_s = 0.0
    assert ranks[0].stdout is not None
    reading = asyncio.create_task(asyncio.to_thread(lambda: times.extend(map(float, ranks[0].stdout or ()))))
    async with Side(folder, "a") as a, Side(folder, "b") as b:
        peers, links = {"a": a.peers, "b": b.peers}, LinkProber("a", 1, answers.append, plain())
        await asyncio.sleep(wish.span_s)
        for turn in range(2 * wish.turns):
            began, probes = time.monotonic(), turn % 2 == 1
            while (left := began + wish.span_s - time.monotonic()) > 0:
                if probes:
                    before_s = time.process_time()
                    await _probe(peers, links, answers, turn)
                    cpu_s += time.process_time() - before_s
                await asyncio.sleep(min(wish.every_s, max(left, 0.0)))
            spans.append((began, time.monotonic(), probes))
        await links.stop()
    for rank in ranks:
        rank.kill()
    await reading
    cpu_s /= len(answers)
    return {
        **_summary(times, spans, answers, wish.every_s),
        "cpu_s_per_round": cpu_s,  # of both agents
        "cpu_ratio_at_the_leaders_pace": cpu_s / policy.ROUND_REST_S,
    }


def _summary(
    times: list[float], spans: list[tuple[float, float, bool]], answers: list[LinksProbed], every_s: float
) -> dict[str, float]:
    """Mean and median step with and without probes, and their ratios."""

    def steps(probes: bool) -> list[float]:
        return [
            later - earlier
            for began, ended, probed in spans
            if probed is probes
            for earlier, later in itertools.pairwise(times)
            if began <= earlier and later <= ended
        ]

    without, with_probes = steps(False), steps(True)
    ratio = mean(with_probes) / mean(without)
    found = [probe for answer in answers for probe in answer.found if not probe.reason]
    return {
        "steps": len(without) + len(with_probes),
        "rounds": len(answers),
        "probes": len(found),
        "bytes_per_probe": mean(probe.bytes for probe in found),
        "step_s": mean(without),
        "ratio_of_means": ratio,
        "ratio_of_medians": median(with_probes) / median(without),
        "ratio_at_the_leaders_pace": 1.0 + (ratio - 1.0) * min(1.0, every_s / policy.ROUND_REST_S),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--span-s", type=float, default=5.0)
    parser.add_argument("--every-s", type=float, default=1.0)
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="hf-") as folder:
        store = str(Path(folder) / "store")
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), store],
                stdout=subprocess.PIPE,
                stdin=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            print(json.dumps(asyncio.run(_measure(Path(folder), ranks, wish))))
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


if __name__ == "__main__":
    main()
