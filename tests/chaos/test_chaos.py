"""A short run of chaos, and the rows of the network one by one: in namespaces, real daemons and ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos import hosts, judge, wires
from tests.chaos.cluster import COORDINATORS, Cluster, until
from tests.chaos.drive import Job
from tests.chaos.wires import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(hosts.missing()), reason=f"no namespaces: {hosts.missing()}"),
]
FENCED_S = 8.0


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that stays when the test fails: it holds the journals."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    try:
        yield path
    except BaseException as error:
        error.add_note(f"kept: {path}")
        raise
    shutil.rmtree(path)


def test_a_short_run_of_chaos() -> None:
    """One blow at a rank, an agent and the leader together: by turns they would take three times as long."""
    words = ["--minutes", "0.01", "--seed", "1", "--json", "--faults", "several.all_sorts"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("faults") == {"several.all_sorts": 1} and told.pop("incidents") >= 1
    assert told == {"wedged": 0, "lost_checkpoints": 0, "digest_mismatches": 0, "sample_errors": 0, "seed": 1}


def test_whoever_holds_the_term_goes_on_and_the_other_side_parks() -> None:
    """One job on one node that no coordinator reaches; another on two that do not reach each other."""
    with folder() as path, Cluster(path, node_timeout_s=6.0, fence_after_s=FENCED_S) as cluster:
        alone, pair = (
            Job(cluster, name, 0.05, 1, most, ()).submit() for name, most in (("alone", 1), ("pair", 2))
        )
        for job in (alone, pair):
            job.settled("the start", beyond=0)
        until(lambda: pair.size == 2, lambda: "two ranks train together")
        (beyond, _), (stays, goes) = alone.place(0), pair.nodes()
        fault = Fault("network")
        wires.cut(alone, fault, beyond, COORDINATORS)
        wires.cut(pair, fault, stays, (goes,))
        _parked(alone, beyond)
        _untangled(pair, stays, goes)
        fault.heal()
        _rejoined(alone, pair, beyond, goes)
        _flapping(alone, beyond)
        for job in (alone, pair):
            total = job.finish()
            found = judge.sample_errors(job, total, job)
            assert found == (0, []), found
        assert judge.replays(cluster) == []


def _parked(job: Job, node: str) -> None:
    """Another node has its seat; its own rank stops, with its state, although nobody can tell it to."""
    until(lambda: job.place(0)[0] != node, lambda: f"another node than {node} has the seat")
    log = job.cluster[node].folder / "daemon.log"
    until(lambda: "is parked: no message from" in log.read_text(), lambda: f"{node} parks its rank")
    step = job.steps.look().highest
    until(lambda: job.steps.look().highest > step + 20, lambda: "the other side goes on")
    known = _written(job, node)  # it had the time to end the step that it was in
    until(lambda: job.steps.look().highest > step + 60, lambda: "the other side goes on")
    assert _written(job, node) == known, "a fenced rank has trained on"


def _written(job: Job, node: str) -> list[int]:
    return [len(path.read_text().splitlines()) for path in sorted(job.folder.glob(f"{node}.*.steps"))]


def _untangled(job: Job, stays: str, goes: str) -> None:
    """The side of rank 0 goes on alone; both sides' words are in the evidence."""
    until(lambda: "does not reach" in _evidence(job), lambda: f"evidence of a cut, not {_evidence(job)}")
    assert f"{stays} does not reach {goes}" in _evidence(job)
    assert f"{goes} does not reach {stays}" in _evidence(job)
    until(
        lambda: job.size == 1 and job.nodes() == [stays], lambda: f"{stays} goes on alone, not {job.nodes()}"
    )
    step = job.steps.look().highest
    until(lambda: job.steps.look().highest > step + 10, lambda: "it trains on")


def _evidence(job: Job) -> str:
    """Of all verdicts so far."""
    job.look()
    verdicts = [body["verdict"] for body in job.journals.bodies("Judged")]
    return "\n".join(row for each in verdicts if each["job"] == job.name for row in each["evidence"])


def _rejoined(alone: Job, pair: Job, beyond: str, goes: str) -> None:
    """Both nodes may take seats again, and one does; the parked rank, whose seat is another's, is ended."""
    until(lambda: ("node_healed", goes) in _notes(pair), lambda: f"{goes} reaches its peers again")
    until(lambda: pair.size == 2, lambda: f"it grows back, not {pair.nodes()}")
    assert pair.nodes()[1] in (beyond, goes)
    log = alone.cluster[beyond].folder / "daemon.log"
    until(lambda: "ended: killed by SIGKILL" in log.read_text(), lambda: f"the parked rank on {beyond} goes")


def _notes(job: Job) -> set[tuple[str, str]]:
    job.look()
    return {(body["kind"], body["subject"]) for body in job.journals.bodies("Note")}


def _flapping(job: Job, node: str) -> None:
    """A line that breaks and comes back: the node takes no seats for a while."""
    for _ in range(4):
        wires.flap(job, node)
    until(lambda: ("node_held", node) in _notes(job), lambda: f"{node} is held down")
    shown = json.loads(job.cluster.holdfast("get", "nodes", "-o", "json").stdout)
    assert {row["node"]: row["standing"] for row in shown}[node] == "held"


def test_what_is_missing_is_said() -> None:
    done = subprocess.run(
        ["unshare", "--user", sys.executable, "-m", "tests.chaos", "--minutes", "0.1"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3 and "nothing was tried: network namespaces need root" in done.stderr
