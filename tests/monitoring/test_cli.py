"""What people ask of a running cluster after a kill: why, top, describe, get."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from controlplane.cli.completion import script
from controlplane.cli.kubernetes.yaml_text import document
from controlplane.cli.questions import tables
from controlplane.core.records.model import Cause, Strategy
from controlplane.reporting import story
from controlplane.reporting.event_text import local_time, sentence_of
from controlplane.reporting.lines import REASON_MAX, brief
from controlplane.reporting.story import CAUSES, STRATEGIES
from tests.e2e.cli_running import Run, running, until

PROGRAM = (sys.executable, "-P", "-m", "controlplane")


def holdfast(*words: str, code: int = 0) -> str:
    """What a command prints. One that says that no leader is known yet, as on a machine so slow that the
    lease was lost for a moment, is given again."""
    deadline = time.monotonic() + 30
    while True:
        run = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)
        if "no leader is known yet" not in run.stderr or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout if code == 0 else run.stderr


def closed(run: Run) -> list[str]:
    outcomes = [body["incident"]["outcome"] for body in run.journal("IncidentChanged")]
    return [outcome for outcome in outcomes if outcome != "open"]


def test_after_a_kill() -> None:
    with running("--nproc-per-node", "2", "--max-restarts", "5") as run:
        os.kill(run.rank_pid(1), signal.SIGKILL)
        run.rank_pid(1, 1)
        until(lambda: closed(run), lambda: run.output)
        where = ("--coordinator", str(run.layout.read_card()["coordinator"]))
        _why(run, where)
        _tables(run, where)
        _described(run, where)
        seen = holdfast("top", "-n", "2", "--interval-s", "0.2", *where)
        assert seen.count("led by") == 2 and run.job in seen and "STEPS/S" in seen
        (run.folder / "done").touch()
        assert run.end() == 0, run.output


def _why(run: Run, where: tuple[str, ...]) -> None:
    told = holdfast("why", *where)
    assert told.startswith(f"incident 1 of job {run.job}") and "was killed by a signal" in told
    assert "rank 1" in told and "What was done: every rank was started again" in told
    assert "What it cost:" in told and "until it was noticed" in told
    plain = json.loads(holdfast("why", f"{run.job}/1", "--json", *where))
    assert plain["outcome"] == "recovered" and plain["verdict"]["cause"] == "signaled"
    assert plain["evidence"] and plain["total_s"] == pytest.approx(sum(plain["phases_s"].values()))
    assert plain["ended_s"] >= plain["begun_s"] > 0
    head, listed = holdfast("why", "--list", "--since", "1h", *where).splitlines()
    assert head.split() == ["INCIDENT", "BEGAN", "OUTCOME", "TOOK", "LOST", "CAUSE"]
    assert listed.startswith(f"{run.job}/1 ") and listed.endswith("rank 1 on n0 was killed by a signal")
    assert holdfast("why", "--list", "--until", "1h", *where) == "no incidents\n"
    assert "was no incident at that time" in holdfast("why", "--at", "1h", *where, code=1)
    began = local_time(plain["begun_s"] + 0.001)
    assert holdfast("why", "--at", began, *where).splitlines()[0] == told.splitlines()[0]
    journal = str(run.layout.state / "journal.jsonl")
    assert holdfast("why", "1", "--journal", journal).splitlines()[0] == told.splitlines()[0]
    assert "the journal has no incident 7" in holdfast("why", "7", *where, code=1)
    assert "the journal has no incident of job seven" in holdfast("why", "seven", *where, code=1)
    assert "is not an incident" in holdfast("why", f"{run.job}/seven", *where, code=2)


def _tables(run: Run, where: tuple[str, ...]) -> None:
    rows = json.loads(holdfast("get", "jobs", "-o", "json", *where))
    again = yaml.safe_load(holdfast("get", "jobs", "-o", "yaml", *where))
    passed_s = {"total_s", "productive_s", "unknown_s", "age_s", "step_s"}
    assert all(each.keys() >= passed_s for each in rows)
    assert [{name: each[name] for name in each.keys() - passed_s} for each in again] == [
        {name: each[name] for name in each.keys() - passed_s} for each in rows
    ]
    (row,) = rows
    assert 0 < row["age_s"] < 600 and row["total_s"] <= row["age_s"] + 1
    assert "AGE" in holdfast("get", "jobs", *where).splitlines()[0].split()
    wide = holdfast("get", "nodes", "-o", "wide", *where)
    assert "INCARNATION" in wide and "INCARNATION" not in holdfast("get", "nodes", *where)
    assert rows[0]["job"] == run.job


def _described(run: Run, where: tuple[str, ...]) -> None:
    job = holdfast("describe", "job", run.job, *where)
    assert "Failures survived:" in job and "incident 1 of job" in job and "Age:" in job and "Ranks:" in job
    node = holdfast("describe", "node", "n0", *where)
    assert "State:" in node and "Processes:" in node and "Newest events:" in node
    assert "did you mean n0?" in holdfast("describe", "node", "n00", *where, code=1)
    assert "no checkpoint named 7-1" in holdfast("describe", "checkpoint", "7-1", *where, code=1)


def judged(number: int, wall_s: float, **changes: object) -> dict[str, object]:
    verdict = {
        "job": "j", "scope": "node", "cause": "node_lost", "nodes": ["n1"], "members": ["j.2"], "ranks": [2],
        "step": 20, "evidence": ["rank 2 (j.2 on n1): the stream broke"], **changes,
    }  # fmt: skip
    plan = {"job": "j", "strategy": "spare", "drop": ["j.2"], "add": ["j.4"], "reason": "one stands ready"}
    body = {"verdict": verdict, "plan": plan, "incident": number}
    return {"type": "Judged", "wall_s": wall_s, "body": body}


def changed(begun: dict[str, object], wall_s: float, outcome: str, **more: object) -> dict[str, object]:
    body = begun["body"]
    assert isinstance(body, dict)
    incident = {
        "id": body["incident"], "job": "j", "verdict": body["verdict"], "plan": body["plan"],
        "generation_before": 1, "generation_after": 2, "lost_steps": 0, "outcome": outcome,
        "phases_s": [["detect", 0.01], ["restore", 1.5]], "restored": "donor rank 0", **more,
    }  # fmt: skip
    return {"type": "IncidentChanged", "wall_s": wall_s, "body": {"incident": incident}}


def test_a_story_has_what_happened_meanwhile_and_nothing_else() -> None:
    one, two = judged(1, 100.0), judged(2, 300.0, cause="raised", scope="rank", evidence=[])
    note = {"kind": "seats_moved", "subject": "j", "reason": "ranks of n1 go to n2", "job": "j"}
    meanwhile = {"type": "Note", "wall_s": 100.5, "body": note}
    lines = [one, meanwhile, changed(one, 101.5, "recovered"), {**meanwhile, "wall_s": 200.0}, two]
    first, second = story.stories(lines)
    assert [text for _, text in first.lines] == ["seats_moved: j: ranks of n1 go to n2"]
    told = story.as_text(first)
    assert "node n1 was lost at step 20" in told and "1.5 s, no step was lost" in told
    assert "a warm spare took its place" in told and "State from: donor rank 0" in told
    assert second.outcome == "open" and "not over yet" in story.as_text(second)
    assert story.as_json(second)["repeated"] == "the steps that are lost are not known yet"
    assert "not known yet" in story.as_text(second) and "none was kept" in story.as_text(second)
    assert story.as_json(second)["ended_s"] is None


def test_an_incident_begins_with_its_injury_and_says_who_came() -> None:
    one = judged(1, 1_000.0)
    spans = [["detect", 40.0], ["decide", 2.0], ["restore", 3.0]]
    told = story.stories([one, changed(one, 1_060.0, "recovered", phases_s=spans)])[0]
    assert (told.begun_s, told.ended_s) == (958.0, 1060.0)
    assert story.as_json(told)["begun_s"] == 958.0
    plan = {"strategy": "await_node", "drop": ["j.2"], "add": [], "reason": "a node is away"}
    still = judged(2, 2_000.0)
    still["body"] |= {"plan": {"job": "j", **plan}}  # type: ignore[operator]
    over = changed(still, 2_050.0, "recovered")
    assert "came: nobody yet" in story.as_text(story.stories([still])[0])
    assert "came: nobody." in story.as_text(story.stories([still, over])[0])


def test_a_planned_change_is_called_one() -> None:
    one = judged(1, 1_000.0, cause="resized", scope="job", evidence=[], nodes=[], ranks=[])
    told = story.stories([one, changed(one, 1_060.0, "recovered")])[0]
    assert story.as_text(told).startswith("planned change 1 of job j, ")
    assert sentence_of(one).text.startswith("planned change 1: ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a node is away", "a node is away"),
        ("it raised:\nTraceback\n  more", "it raised: ..."),
        ("x" * 100 + "y" * 100, "x" * 67 + " ... " + "y" * 68),
    ],
)
def test_a_reason_in_a_table_is_one_line_and_short(text: str, shown: str) -> None:
    assert brief(text) == shown
    assert len(brief(text)) <= REASON_MAX
    assert len(tables.plain(["A", "B"], [["one\ntwo", text]]).splitlines()) == 2


def test_every_cause_and_strategy_has_its_words() -> None:
    assert set(CAUSES) == {cause.value for cause in Cause}
    assert set(STRATEGIES) == {strategy.value for strategy in Strategy}


@pytest.mark.parametrize(
    "value",
    [
        [{"a": "x", "b": [1, 2.5, None, True], "c": {}, "d": []}],
        {"no": "no", "text": "a: b # c", "lines": "x\ny", "deep": [{"k": [{"z": -1}]}], "empty": ""},
        ["yes", "1", "plain-word", "-", "null", "é"],
        {"a": 1, "b": [], "c": {}, "d": ["x", {"y": [1, [2]]}], "e": None, "g": "true", "h": "1.0"},
        {"text": "two\nlines: #no", "empty": "", "odd": "- a", "colon": "a: b", "null": "null", "no": "NO"},
        [1.5, "x y", "ünï", {"k/v": "s3://b"}],
    ],
)
def test_yaml_reads_back(value: object) -> None:
    assert yaml.safe_load(document(value)) == value


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script(shell: str) -> None:
    script = holdfast("completion", shell)
    assert "why" in script and "--journal" in script and "checkpoints" in script
    assert shell == "bash" or "== (eval|file) " in script, "it registers itself when it is sourced"
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here to read it")
    run = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("why --js", "--json"),
        ("describe job -o y", "yaml"),
        ("get jobs --output ''", "table wide json yaml name"),
        ("kubernetes render -o ''", "yaml values"),
        ("checkpoint list -o w", "wide"),
    ],
)
def test_bash_completes(words: str, found: str) -> None:
    asks = f"COMP_WORDS=(holdfast {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _shtab_holdfast"
    program = f"{script('bash')}\n{asks}; echo ${{COMPREPLY[@]}}"
    run = subprocess.run(["bash", "-c", program], text=True, capture_output=True, check=True)
    assert run.stdout.split() == found.split()
