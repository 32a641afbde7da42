"""Batches that are fetched ahead: killed, resized, left out or not, every step has its samples and its random
numbers, and nothing of a left generation is consumed or stays behind."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.data import sampling
from tests.sdk.node import Node, samples
from tests.sdk.reentry.test_resize import ElasticNode

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("loading.py")
N, BATCH, STEPS = 97, 10, 14
KILL = {"rank": 1, "step": 6, "phase": "part0"}
AHEAD = {"num_workers": 2, "prefetch_factor": 4}
ONE = {"num_workers": 1, "prefetch_factor": 4}


@dataclass(frozen=True)
class Told:
    """What the ranks of one run wrote down of what they consumed, of the newest time that each step ran."""

    samples: dict[int, list[int]]
    noise: dict[int, list[float]]
    weights: dict[int, list[list[float]]]
    workers: dict[int, set[int]]
    generations: dict[int, int]


def read(folder: Path, book: str = "book") -> Told:
    lines: dict[tuple[int, int], dict[str, Any]] = {}
    for path in folder.glob(f"{book}.*"):
        for line in map(json.loads, path.read_text().splitlines()):
            known = lines.get((line["step"], line["rank"]))
            if known is None or known["generation"] <= line["generation"]:
                lines[line["step"], line["rank"]] = line
    newest: dict[int, int] = {}
    for (step, _), line in lines.items():
        newest[step] = max(newest.get(step, 0), line["generation"])
    told = Told({}, {}, {}, {}, {})
    for (step, _), line in sorted(lines.items()):
        if line["generation"] < newest[step]:
            continue  # of a rank that the newer, smaller world does not have
        told.samples.setdefault(step, []).extend(line["samples"])
        told.noise.setdefault(step, []).extend(line["noise"])
        told.weights.setdefault(step, []).append(line["weights"])
        told.workers.setdefault(step, set()).update(line["workers"])
        told.generations[step] = line["generation"]
    return told


def wanted(steps: int = STEPS, batch: int = BATCH) -> dict[int, list[int]]:
    return {step: sampling.indices(N, step * batch, batch, seed=3).tolist() for step in range(steps)}


def run(node: Node) -> tuple[Told, list[list[float]]]:
    node.run()
    told, sums = read(node.folder), [line["sums"] for line in node.results()]
    assert samples(node.folder / "ledger") == told.samples, "the ledger tells what was consumed"
    gone(pid for pids in told.workers.values() for pid in pids)
    return told, sums


def gone(pids: Any) -> None:
    """Every one of these processes ends."""
    deadline = time.monotonic() + 30
    for pid in set(pids):
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline, f"process {pid} is left behind"
            time.sleep(0.01)


def options(**values: Any) -> str:
    return json.dumps(values)


@pytest.fixture(scope="module")
def undisturbed(zygote: Zygote) -> tuple[Told, list[list[float]]]:
    """Without workers."""
    with Node(zygote, SCRIPT, 3) as node:
        told, sums = run(node)
        assert told.samples == wanted()
        assert [len(each) for each in told.weights[0]] == [1, 1, 1]
        assert told.weights[0] == [[0.9], [0.9], [1.2]], "shares of 3, 3 and 4"
        assert len(sums) == 3 and sums[0] == sums[1] == sums[2]
        return told, sums


def test_workers_change_nothing(zygote: Zygote, undisturbed: tuple[Told, list[list[float]]]) -> None:
    with Node(zygote, SCRIPT, 3, OPTIONS=options(**AHEAD)) as node:
        told, sums = run(node)
        pids = {line["pid"] for line in node.results()}
    assert not pids & {pid for found in told.workers.values() for pid in found}, "workers made the samples"
    assert (told.samples, told.noise, sums) == (undisturbed[0].samples, undisturbed[0].noise, undisturbed[1])


@pytest.mark.parametrize(
    ("given", "outside"),
    [
        (AHEAD, ""),
        ({**AHEAD, "persistent_workers": True}, "1"),
        ({**AHEAD, "persistent_workers": True}, ""),
        ({**AHEAD, "num_workers": 1, "multiprocessing_context": "spawn"}, ""),
        (
            {**AHEAD, "num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True},
            "1",
        ),
    ],
    ids=["fork", "fork-kept", "fork-made-anew", "spawn", "forkserver-kept"],
)
def test_a_kill_with_batches_fetched_ahead(
    zygote: Zygote, undisturbed: tuple[Told, list[list[float]]], given: dict[str, Any], outside: str
) -> None:
    before = set(os.listdir("/dev/shm"))
    env = {"OUTSIDE": outside} if outside else {}
    with Node(zygote, SCRIPT, 3, spares=1, KILL=json.dumps([KILL]), OPTIONS=options(**given), **env) as node:
        told, sums = run(node)
        # A rank that has not ended the step before takes the others back with it.
        first, again = (one["resume"]["step"] for one in node.generations)
        assert first == 0 and again in (5, 6)
        survivor = {line["rank"]: line["pid"] for line in node.results()}[0]
        assert survivor == node.members["job.0"].pid, "survivors keep their process"
    assert {s: g for s, g in told.generations.items() if s != again} == {
        step: 1 if step < again else 2 for step in range(STEPS) if step != again
    }
    assert (told.samples, told.noise, sums) == (undisturbed[0].samples, undisturbed[0].noise, undisturbed[1])
    left = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("sem.")}
    deadline = time.monotonic() + 30
    while left & set(os.listdir("/dev/shm")):
        assert time.monotonic() < deadline, f"semaphores are left behind: {left}"
        time.sleep(0.02)


def test_persistent_workers_are_given_new_work(zygote: Zygote) -> None:
    given = options(**AHEAD, persistent_workers=True)
    with Node(zygote, SCRIPT, 2, spares=1, KILL=json.dumps([KILL]), OPTIONS=given, OUTSIDE="1") as node:
        node.run()
        kept = []
        for path in node.folder.glob("book.*"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found = [
                {pid for each in lines if each["generation"] == one for pid in each["workers"]}
                for one in (1, 2)
            ]
            kept += [found] if all(found) else []
        assert len(kept) == 1 and kept[0][0] == kept[0][1], "the survivor's workers"
        assert samples(node.folder / "ledger") == wanted()


class SkippingNode(Node):
    """The tests' node, whose second generation leaves batches 8 and 9 out."""

    def resume(self, seats: list[str]) -> Message:
        found = super().resume(seats)
        return {**found, "skip": [{"first": 8, "end": 10}]} if self.incidents else found


@pytest.mark.parametrize("kind", ["loader", "sampler"])
def test_batches_that_are_left_out_by_policy(zygote: Zygote, kind: str) -> None:
    """Uneven shares, batches of the left generation fetched ahead, and a window of skipped data. It lies in
    the first of two functions: the second has all of its own."""
    env = {"KILL": json.dumps([KILL]), "OPTIONS": options(**AHEAD), "KIND": kind, "FUNCTIONS": "2"}
    with SkippingNode(zygote, SCRIPT, 3, spares=1, **env) as node:
        node.functions = 2
        node.run()
        told, later = read(node.folder), read(node.folder, "book1")
        ledger = samples(node.folder / "ledger")
    order = wanted(STEPS + 2)
    assert told.samples == {step: order[step if step < 8 else step + 2] for step in range(STEPS)}
    assert {tuple(map(tuple, each)) for each in told.weights.values()} == {((0.9,), (0.9,), (1.2,))}
    assert later.samples == wanted()
    assert list(ledger.values()) == [*told.samples.values(), *later.samples.values()]


class ForgettingNode(Node):
    """The same, and its third generation knows nothing of that, as a job whose checkpoint was adopted."""

    def resume(self, seats: list[str]) -> Message:
        found = super().resume(seats)
        return {**found, "skip": [{"first": 8, "end": 10}]} if len(self.incidents) == 1 else found


LATER = [{"rank": rank, "step": 12, "phase": "part0"} for rank in (0, 1)]


@pytest.mark.parametrize("dead", [1, 2], ids=["one", "all"])
def test_batches_left_out_that_the_job_has_forgotten(zygote: Zygote, dead: int) -> None:
    """By samples consumed none of them comes a second time, whoever is left to know it."""
    env = {"KILL": json.dumps([KILL, *LATER[:dead]]), "CHANGE": "continue"}
    with ForgettingNode(zygote, SCRIPT, 2, spares=1, **env) as node:
        node.run()
        told = read(node.folder)
        assert len(node.generations) == 3
    order = wanted(STEPS + 2)
    assert told.samples == {step: order[step if step < 8 else step + 2] for step in range(STEPS)}


def test_batches_left_out_that_the_job_has_forgotten_are_refused(zygote: Zygote) -> None:
    with ForgettingNode(zygote, SCRIPT, 2, spares=1, KILL=json.dumps([KILL, *LATER])) as node:
        node.run(lambda: any(node.zygote.poll(member.pid) == 1 for member in node.members.values()))
        logs = "".join(member.log.read_text() for member in node.members.values())
    assert "the state of step 10 continues with batch 12 of its data" in logs
    assert 'Session(data_change="continue")' in logs


@pytest.mark.parametrize("kind", ["loader", "indices"])
def test_micro_batches(zygote: Zygote, kind: str) -> None:
    """Shares of 3, 3 and 4 in micro-batches of two at most (or in three parts), killed between two."""
    kill = json.dumps([{"rank": 2, "step": 5, "phase": "part1"}])
    env: dict[str, Any] = {
        "KIND": kind,
        "MICRO": "2",
        "OPTIONS": options(**AHEAD) if kind == "loader" else "{}",
    }
    with Node(zygote, SCRIPT, 3, **env) as node:
        calm, sums = run(node)
    with Node(zygote, SCRIPT, 3, spares=1, KILL=kill, **env) as node:
        told, ends = run(node)
    assert calm.samples == told.samples == wanted() and calm.noise == told.noise and sums == ends
    thirds = [[0.9] * 3, [0.9] * 3, [0.9, 0.9, 1.8]]
    halves = [[0.6, 1.2], [0.6, 1.2], [1.2, 1.2]]
    assert [[round(w, 6) for w in each] for each in told.weights[7]] == (
        halves if kind == "loader" else thirds
    )


def test_four_three_four_ranks_with_workers(zygote: Zygote) -> None:
    kill = json.dumps([{"rank": 1, "step": 4, "phase": "backward"}])
    given = options(num_workers=1, prefetch_factor=4)
    with ElasticNode(zygote, SCRIPT, 4, KILL=kill, OPTIONS=given, WAIT_FOR="9", STEPS="20") as node:
        node.run(lambda: node.world_size == 3 and node.generation > 1 and node.trained(9))
        node.grow()
        told, sums = run(node)
        assert [one["world_size"] for one in node.generations] == [4, 3, 4]
    assert told.samples == wanted(20) and len({tuple(each) for each in sums}) == 1
