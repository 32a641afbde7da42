"""What the demo plants and what it concludes: plans, slowed processes, accusations."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.demo.accusations import PlantedFault, SeenFindings, accused, as_json, hangs
from controlplane.cli.demo.duty_cycle import DutyCycle, work_s
from controlplane.cli.demo.faults import KINDS, PlannedFault, impossible_fault, may_show, read_fault, settled
from controlplane.cli.demo.neighbour import NoisyNeighbour
from controlplane.cli.errors import CliError, UsageError
from controlplane.cli.main import main
from controlplane.core.records.model import Cause, Scope, Verdict
from holdfast.examples.plan import VARIABLE
from holdfast.examples.planted_gpt import PLAYED

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
NODES = {0: "n0", 1: "n0", 2: "n1", 3: "n1"}
REPLICAS = {rank: rank for rank in NODES}


def test_a_leak_is_watched_for_as_many_steps_as_it_needs_and_a_hang_for_none() -> None:
    leak, hang = PlannedFault("leak", 1, 40, 1.5), PlannedFault("skipped-collective", 2, 60)
    needed = 40 + KINDS["leak"].shows_after
    assert needed > 140, "only after 100 steps it has so much more"
    assert [may_show((leak, hang), step) for step in (0, needed - 1, needed)] == [False, False, True]
    assert may_show((hang,), 0), "a process that has just joined has completed none"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("none", PlannedFault("none")),
        ("slow=rank:2,at:40,factor:1.5,seed:7", PlannedFault("slow", 2, 40, 1.5, 7)),
        ("slow=seed:7,rank:2", PlannedFault("slow", 2, 0, 2.0, 7)),
        ("bitflip=rank:2,at:9", PlannedFault("bitflip", 2, 9)),
        ("imbalance=factor:8", PlannedFault("imbalance", factor=8.0)),
        ("last-stage=factor:3", PlannedFault("last-stage", factor=3.0)),
        ("skipped-collective=rank:0,at:3", PlannedFault("skipped-collective", 0, 3)),
        ("slow-link=rank:2,factor:5", PlannedFault("slow-link", 2, factor=5.0)),
    ],
)
def test_plans_are_read(text: str, fault: PlannedFault) -> None:
    assert read_fault(text) == fault
    assert impossible_fault([settled(fault, 100)], steps=100, nodes=4, per_node=1) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slwo=rank:1", "unknown fault 'slwo'.*slow"),
        ("slow", "no rank: give one, as in slow=rank:2"),
        ("slow=rank:1,factor:1", "factor 1 .*give more than 1"),
        ("slow=rank:1,factor:nan", "give more than 1"),
        ("slow=rank:1,factor:1000", "up to 100"),
        ("slow=rank:-1", "rank is '-1': give a whole number"),
        ("slow=rank:1,at:2.5", "at is '2.5': give a whole number"),
        ("slow=rank:1,rank:2", "rank is given twice"),
        ("slow=rank:1,step:3", "slow has no 'step'.*it takes rank, at, factor, seed"),
        ("imbalance=rank:1", "imbalance has no 'rank'"),
        ("skipped-collective=rank:1,factor:2", "has no 'factor'"),
        ("bitflip=rank:1,factor:2", "has no 'factor'"),
        ("slow-link=at:9", "no rank: give one, as in slow-link=rank:2"),
    ],
)
def test_plans_that_are_none(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        read_fault(text)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["slow=rank:4,at:9"], "only 4 ranks"),
        (["slow=rank:1,at:100"], "give at:1 to at:99"),
        (["slow=rank:1,at:9", "slow=rank:1,at:20"], "planted there already"),
        (["slow=rank:1,at:9", "none"], "none is planted together with"),
        (["last-stage", "slow=rank:1,at:9"], "last-stage is planted together with"),
        (["slow=rank:1,at:9", "slow-link=rank:1"], "among 2 nodes nobody can say whose cable is slow"),
    ],
)
def test_plans_that_do_not_fit_the_run(texts: list[str], said: str) -> None:
    faults = [settled(read_fault(text), 100) for text in texts]
    assert said in impossible_fault(faults, steps=100, nodes=2, per_node=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plant", "none"], "--plant is for --doctor: add it"),
        (["--watch-s", "9"], "--watch-s is for --doctor: add it"),
        (
            ["--doctor", "--plant", "last-stage", "--nproc-per-node", "1", "--nodes", "3"],
            "multiple of 2 ranks",
        ),
        (["--doctor", "--kill", "rank=1@step=4"], "--kill and --doctor: give one of them"),
        (["--doctor", "--plant", "slow=rank:9"], "there are only 4 ranks"),
        (["--doctor", "--plant", "slow-link=rank:4"], "there are only 4 ranks"),
        (["--doctor", "--plant", "slow-link=rank:1", "--nodes", "3"], "give --nodes 4 or more"),
    ],
)
def test_flags_that_do_not_go_together(words: list[str], said: str, capsys: Any) -> None:
    assert main(["demo", *words]) == UsageError("").code
    assert said in capsys.readouterr().err


def test_a_link_is_not_slowed_where_the_machine_has_no_such_networks() -> None:
    """The tools are not on the path; without root they would not help."""
    command = [sys.executable, "-P", "-m", "controlplane", "demo", "--doctor", "--plant", "slow-link=rank:1"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": ""}
    )
    assert done.returncode == CliError("").code
    assert "--plant slow-link is not possible here: " in done.stderr
    assert ("ip, tc, unshare, nsenter not found" if os.geteuid() == 0 else "need root") in done.stderr


def test_every_kind_is_played_by_somebody() -> None:
    assert {name for name, kind in KINDS.items() if kind.by_script} == set(PLAYED)


def test_nobody_but_the_demo_and_its_script_can_read_the_plan() -> None:
    naming = {
        path.relative_to(ROOT).as_posix()
        for package in ("agent", "controlplane", "holdfast")
        for path in (ROOT / package).rglob("*.py")
        if any(
            word in path.read_text()
            for word in (VARIABLE, "planted_gpt", "planted_pipe", "examples.plan", "examples import plan")
        )
    }
    assert naming == {
        "controlplane/cli/demo/command.py",
        "controlplane/cli/demo/diagnosed.py",
        "holdfast/examples/plan.py",
        "holdfast/examples/planted_gpt.py",
        "holdfast/examples/planted_pipeline.py",
    }


# ---------------------------------------------------------------- slowed processes


@pytest.fixture
def busy() -> Iterator[list[int]]:
    """Two processes that compute and do nothing else."""
    found = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield [each.pid for each in found]
    for each in found:
        each.kill()
        each.wait()


def test_a_slowed_process_gets_less_done_than_its_peer(busy: list[int]) -> None:
    slow, peer = busy
    before = {pid: work_s(pid)[0] for pid in busy}
    duty = DutyCycle(slow, [peer], factor=4.0, seed=1)
    while work_s(peer)[0] < before[peer] + 1.0:
        assert os.path.exists(f"/proc/{peer}")
    duty.end()
    ran = {pid: work_s(pid)[0] - before[pid] for pid in busy}
    assert ran[slow] < 0.6 * ran[peer]
    after = work_s(slow)[0]
    while work_s(slow)[0] == after:  # it runs again: else this never ends
        assert os.path.exists(f"/proc/{slow}")


def test_a_process_that_ends_while_it_is_slowed_harms_nobody(busy: list[int]) -> None:
    duty = DutyCycle(busy[0], [busy[1]], factor=4.0, seed=1)
    os.kill(busy[0], 9)
    os.waitpid(busy[0], 0)
    duty.end()
    with pytest.raises(OSError, match="No such"):
        DutyCycle(busy[0], [busy[1]], factor=4.0, seed=1)


@pytest.mark.process
def test_a_neighbour_computes_until_it_is_ended() -> None:
    neighbour = NoisyNeighbour(3)
    deadline = time.monotonic() + 30
    while work_s(neighbour.pid)[0] < 0.5:  # more than it takes to start
        assert time.monotonic() < deadline
        time.sleep(0.01)
    neighbour.end()
    assert not os.path.exists(f"/proc/{neighbour.pid}")


# ---------------------------------------------------------------- accusations


def row(kind: str, opened_s: float, **subject: Any) -> dict[str, Any]:
    return {
        "id": f"{kind}:{subject}",
        "kind": kind,
        "subject": subject,
        "severity": "warning",
        "opened_s": opened_s,
        "resolved_s": None,
        "first_step": 41,
        "confidence": 1.0,
        "reason": "it is",
    }


def document(
    *found: dict[str, Any], resolved: tuple[dict[str, Any], ...] = (), links_unknown: str = ""
) -> dict[str, Any]:
    return {
        "findings": found,
        "resolved": resolved,
        "anatomy": {"judged": True},
        "links": {"suspicion": "", "unknown": links_unknown, "code": links_unknown and "not_probed"},
        "failed_detectors": [],
    }


@pytest.mark.parametrize(
    ("subject", "ranks"),
    [
        ({"rank": 2, "node": "n1"}, {2}),
        ({"rank": None, "node": "n1"}, {2, 3}),
        ({"rank": None, "node": None, "dp_rank": 1}, {1}),
        ({"rank": None, "ranks": [0, 3]}, {0, 3}),
        ({}, set()),
    ],
)
def test_a_subject_accuses_the_ranks_that_it_names(subject: dict[str, Any], ranks: set[int]) -> None:
    assert accused(subject, NODES, {rank: rank for rank in NODES}) == ranks


@pytest.mark.parametrize("rank", [0, 3])
def test_the_planted_rank_is_guilty_and_every_other_one_healthy(rank: int) -> None:
    other = 3 - rank
    seen = SeenFindings()
    late, early = row("slow_rank", 112.5, rank=rank), row("throttled", 101.0, rank=other)
    assert seen.take(document(early)) == [early]
    assert seen.take(document(late, resolved=({**early, "resolved_s": 110.0},))) == [late]
    planted = [PlantedFault(PlannedFault("slow", rank, 40, 2.0, 1), 100.0)]
    result = as_json(planted, [], seen, NODES, REPLICAS)
    found = {each["subject"]["rank"]: each for each in result["findings"]}
    assert found[rank]["first_found_s"] == 12.5 and found[other]["first_found_s"] is None
    assert found[rank]["planted_at_s"] == found[rank]["opened_s"] - 12.5
    assert found[other]["planted_at_s"] is None
    assert found[other]["resolved_s"] == 110.0 and found[rank]["step"] == 41
    assert result["accused_healthy"] == [{"rank": other, "kind": "throttled", "severity": "warning"}]
    assert result["planted"] == [
        {"kind": "slow", "rank": rank, "at": 40, "factor": 2.0, "seed": 1, "planted_at_s": 100.0}
    ]


def test_a_crowd_and_what_was_known_before_are_about_no_planted_fault() -> None:
    seen = SeenFindings()
    seen.take(document(row("crowded_cpu", 112.0, rank=None, node="n0"), row("slow_rank", 80.0, rank=0)))
    planted = [PlantedFault(PlannedFault("slow", 0, 40, 2.0, 1), 100.0)]
    result = as_json(planted, [], seen, NODES, REPLICAS)
    assert [each["first_found_s"] for each in result["findings"]] == [None, None]
    seen.take(document(row("overfull_last_stage", 90.0)))
    result = as_json([PlantedFault(PlannedFault("last-stage"), 100.0)], [], seen, NODES, REPLICAS)
    assert [each["first_found_s"] for each in result["findings"]] == [None, 0.0, 0.0]


def test_of_a_slow_link_all_ranks_of_its_node_may_be_named_and_nobody_else() -> None:
    seen = SeenFindings()
    seen.take(document(row("slow_node_network", 130.0, rank=None, node="n1"), links_unknown="not probed yet"))
    seen.take(document(row("slow_rank", 131.0, rank=2), row("slow_rank", 132.0, rank=1)))
    planted = [PlantedFault(PlannedFault("slow-link", 3, 40, 8.0), 100.0)]
    result = as_json(planted, [], seen, NODES, REPLICAS)
    assert result["accused_healthy"] == [{"rank": 1, "kind": "slow_rank", "severity": "warning"}]
    assert [each["first_found_s"] for each in result["findings"]] == [30.0, None, None]
    assert (result["links_unknown"], result["links_code"]) == ("not probed yet", "not_probed")


def test_of_nothing_planted_everybody_named_is_accused_while_healthy_but_no_crowd() -> None:
    seen = SeenFindings()
    seen.take(document(row("slow_node", 10.0, rank=None, node="n0"), row("uneven_work", 11.0)))
    seen.take(document(row("crowded_cpu", 12.0, rank=None, node="n1")))
    result = as_json([PlantedFault(PlannedFault("none"), 5.0)], [], seen, NODES, REPLICAS)
    assert [each["rank"] for each in result["accused_healthy"]] == [0, 1]
    assert [each["first_found_s"] for each in result["findings"]] == [None, None, None]


def hang(number: int, cause: Cause, *ranks: int) -> dict[str, Any]:
    """An incident as the journal has it."""
    verdict = Verdict("job", Scope.RANK, cause, (), (), ranks, 40, ("it entered 4, ranks 0, 2, 3 wait",))
    return {"id": number, "verdict": json.loads(json.dumps(dataclasses.asdict(verdict)))}


def test_a_hang_of_the_journal_is_shown_as_a_finding() -> None:
    nobody, named = hang(1, Cause.HUNG), hang(2, Cause.HUNG, 1)
    entries = [(50.0, nobody), (52.0, nobody), (60.0, hang(3, Cause.SIGNALED, 2)), (70.0, named)]
    journal = [
        {"type": "IncidentChanged", "term": 1, "wall_s": wall_s, "body": {"incident": each}}
        for wall_s, each in entries
    ]
    found = hangs([*journal, {"type": "Judged", "term": 1, "wall_s": 1.0, "body": {}}])
    assert [(each["subject"]["rank"], each["opened_s"]) for each in found] == [(None, 50.0), (1, 70.0)]
    assert [accused(each["subject"], NODES, {}) for each in found] == [set(), {1}]
    assert found[1]["reason"] == "it entered 4, ranks 0, 2, 3 wait" and found[1]["first_step"] == 40
