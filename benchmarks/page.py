"""Measure the status page and /metrics of a coordinator with thousands of nodes.

`python -m benchmarks.page --json`: {"first_paint_s", "whole_s", "update_ms", "update_worst_ms",
"watched_cpu", "unwatched_cpu", "page_cpu", "state_bytes", "scrape_ms", "scrape_bytes", ...}. The coordinator
is a process of its own; its nodes exist only as events in that process. The browser is a real Chromium;
without one, what needs it is null."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.load import LoadMeter
from benchmarks.report import show
from benchmarks.scale import shape
from benchmarks.scale.shape import RANKS
from controlplane.access.authentication import Authenticator
from controlplane.access.tls import TlsFiles
from controlplane.core.records.events import CordonRequested, Elected, NodeBeat, NodeJoined
from controlplane.core.records.model import MemberPhase, MemberStatus
from controlplane.daemon.page.server import Page
from controlplane.daemon.telemetry.metrics_server import MetricsServer
from tests.page.browser import DESK, Browser, Tab, chromium, tab
from tests.security.serving import leading, serving

if TYPE_CHECKING:
    from controlplane.daemon.leadership.leader_term import LeaderTerm

BEAT_S = 10.0
UPDATES, SCRAPES = 20, 20
WATCHED_S = 10.0
START_TIMEOUT_S = 300.0
HEARD = """import("/static/feed.js").then(({ listen }) => {
  window.drawn = {};
  listen((changes) => {
    const nodes = [...(changes?.get("nodes") ?? [])];
    requestAnimationFrame(() => {
      for (const name of nodes) window.drawn[name] ??= (performance.timeOrigin + performance.now()) / 1000;
    });
  });
})"""
"""Records when each node was drawn again for the first time."""
BEGUN = """new MutationObserver((_, self) => {
  if (!document.documentElement.dataset.moment) return;
  self.disconnect();
  window.whole = performance.now() / 1000;
}).observe(document, { attributes: true, subtree: true });"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000"


def elected(nodes: int) -> Elected:
    """What a new leader reads from etcd about a job that trains on this many nodes."""
    spec, state, generation = shape.training("train", 0, nodes)
    names = tuple(map(shape.name_of, range(nodes)))
    return Elected(
        2, nodes=names, specs=(spec,), states=(state,), generations=(generation,), wall_s=time.time()
    )


class Swarm:
    """Nodes that train on under a new leader, all in this process: they send events to the leader's loop."""

    def __init__(self, leader_term: LeaderTerm, nodes: int) -> None:
        self._leader_term, self._nodes, self._seq = leader_term, nodes, 1
        self._members = {
            f"n{node:05}": [running(rank) for rank in range(node * RANKS, (node + 1) * RANKS)]
            for node in range(nodes)
        }

    async def begin(self) -> None:
        """Have all nodes join and beat once."""
        for name, members in self._members.items():
            joined = NodeJoined(name, 1, "l", "127.0.0.1", RANKS, 29500, tuple(members))
            await self._say(joined)
        last = NodeBeat(name, 1, 1, 29500, tuple(members))
        await self._leader_term.loop.ask(last)

    async def beat(self) -> None:
        """Beat until cancelled."""
        while True:
            await self._beat_all(BEAT_S)

    async def _beat_all(self, within_s: float = 0.0) -> None:
        self._seq += 1
        begun = time.monotonic()
        for number in range(self._nodes):
            name = f"n{number:05}"
            await self._say(NodeBeat(name, 1, self._seq, 29500, tuple(self._members.get(name, ()))))
            await asyncio.sleep(max(0.0, begun + within_s * number / self._nodes - time.monotonic()))

    def cordon(self, number: int) -> str:
        """Cordon a node, so that something changes on the page. Returns its name."""
        name = f"n{number:05}"
        self._leader_term.post(CordonRequested(name, True, "measured"))
        return name

    async def _say(self, event: Any) -> None:
        self._leader_term.post(event)
        await self._leader_term.loop.room()


def running(rank: int, step: int = 7) -> MemberStatus:
    """The status of a rank that trains, as its agent reports it."""
    return MemberStatus(
        f"train.{rank}", "train", MemberPhase.RUNNING, elastic=True, generation=1, rank=rank, step=step
    )


async def serve(nodes: int) -> None:
    """Be a coordinator until standard input ends. Each line is `cpu`, or the number of a node to cordon."""
    async with serving() as served, leading(served.front, elected(nodes)) as leader_term:
        page = Page(served.front, ("127.0.0.1", 0), TlsFiles(), Authenticator("c1"))
        page.start()
        metrics = MetricsServer(served.front.metrics, "127.0.0.1", 0)
        swarm = Swarm(leader_term, nodes)
        await swarm.begin()
        beating = asyncio.create_task(swarm.beat())
        print(json.dumps({"page": page.port, "metrics": metrics.port}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "cpu":
                print(json.dumps({"cpu_s": time.process_time()}), flush=True)
            else:
                said_s = time.time()
                print(json.dumps({"node": swarm.cordon(int(line)), "said_s": said_s}), flush=True)
        beating.cancel()
        await page.close()
        metrics.close()


class Coordinator:
    """The process under measurement."""

    def __init__(self, nodes: int) -> None:
        argv = [sys.executable, "-m", "benchmarks.page", "--serve", str(nodes)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = self._read()

    def ask(self, line: str) -> dict[str, Any]:
        """Send it a line, and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            raise SystemExit(f"the coordinator ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(text)
        return found

    def end(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def scraped(port: int) -> dict[str, float]:
    """The median time and the size of /metrics."""
    spans_s, size = [], 0
    for _ in range(SCRAPES):
        begun = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            size = len(reply.read())
        spans_s.append(time.perf_counter() - begun)
    return {
        "scrape_ms": round(1000 * statistics.median(spans_s), 1),
        "scrape_worst_ms": round(1000 * max(spans_s), 1),
        "scrape_bytes": size,
    }


async def looked(path: str, coordinator: Coordinator) -> dict[str, float]:
    """What the page costs its viewer and the coordinator."""
    browser = Browser(path)
    try:
        async with tab(browser) as page:
            return await _looked(page, coordinator)
    finally:
        browser.end()


async def _looked(page: Tab, coordinator: Coordinator) -> dict[str, float]:
    await page.sized(DESK)
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=BEGUN)
    await page.open(f"http://localhost:{coordinator.ports['page']}/nodes")
    await page.until("window.whole", timeout_s=60)
    found = {
        "first_paint_s": round(float(await page.run(PAINTED)), 3),
        "whole_s": round(float(await page.run("window.whole")), 3),
    }
    begun_s = coordinator.ask("cpu")["cpu_s"]
    await asyncio.sleep(WATCHED_S)
    found["watched_cpu"] = round((coordinator.ask("cpu")["cpu_s"] - begun_s) / WATCHED_S, 3)
    await page.run(f"{HEARD}.then(() => 0)")
    spans_s = []
    for number in range(UPDATES):
        told = coordinator.ask(str(number * 7))
        await page.until(f"window.drawn[{json.dumps(told['node'])}]")
        drawn_s = float(await page.run(f"window.drawn[{json.dumps(told['node'])}]"))
        spans_s.append(drawn_s - told["said_s"])
    found["update_ms"] = round(1000 * statistics.median(spans_s), 1)
    found["update_worst_ms"] = round(1000 * max(spans_s), 1)
    return found


def measure(nodes: int) -> dict[str, Any]:
    """Measure one coordinator with this many nodes."""
    coordinator, load = Coordinator(nodes), LoadMeter()
    try:
        time.sleep(WATCHED_S)  # the first heartbeats of all nodes cost more
        begun_s = coordinator.ask("cpu")["cpu_s"]
        time.sleep(WATCHED_S)
        unwatched = (coordinator.ask("cpu")["cpu_s"] - begun_s) / WATCHED_S
        found: dict[str, Any] = {"nodes": nodes, "ranks": nodes * RANKS}
        found |= dict.fromkeys(("first_paint_s", "whole_s", "update_ms", "update_worst_ms"))
        found |= scraped(coordinator.ports["metrics"]) | {"unwatched_cpu": round(unwatched, 3)}
        with urllib.request.urlopen(
            f"http://127.0.0.1:{coordinator.ports['page']}/api/state", timeout=60
        ) as reply:
            found["state_bytes"] = len(reply.read())
        if path := chromium():
            found |= asyncio.run(looked(path, coordinator))
            found["page_cpu"] = round(found["watched_cpu"] - found["unwatched_cpu"], 3)
    finally:
        coordinator.end()
    load.sample()
    return found | {"load": load.result()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    parser.add_argument("--nodes", type=int, default=1000, help="of 8 ranks each (default: 1000)")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    values = parser.parse_args()
    if values.serve:
        uvloop.run(serve(values.serve))
        return
    show(measure(values.nodes), as_json=values.json)


if __name__ == "__main__":
    main()
