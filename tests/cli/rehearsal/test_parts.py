"""What a rehearsal plans, what counts as a difference, and what it says of it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.demo.kills import PlannedKill
from controlplane.cli.demo.strike import KillResult
from controlplane.cli.errors import UsageError
from controlplane.cli.flags.parser import Parser
from controlplane.cli.rehearsal import command, differences, report
from controlplane.cli.rehearsal.differences import Difference
from controlplane.cli.rehearsal.plan import RehearsalPlan, rounded, usual_kills
from holdfast.checkpoint.format import typed
from holdfast.checkpoint.format.chunks import Chunk
from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard, Piece
from holdfast.holds import OF_FAILURES, Holds
from holdfast.ipc.layout import Tensor

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="holdfast rehearse")
    parser.become(command.COMMANDS["rehearse"])
    return parser.parse_args(words)


def plan(*words: str) -> RehearsalPlan:
    return command.planned(parsed(*words))


def test_kills_are_spread_over_ranks_and_steps() -> None:
    places = [(kill.target, kill.step, kill.index) for kill in usual_kills(30, 4)]
    assert places == [("rank", 6, 3), ("rank", 12, 0), ("rank", 24, 2)]
    assert {kill.index for kill in usual_kills(30, 1)} == {0}
    assert [kill.step for kill in usual_kills(2, 2)] == [1, 1, 1]
    assert (rounded(30, 10), rounded(31, 10), rounded(2, 10)) == (30, 40, 10)


def test_flags_of_run_go_to_run_and_those_of_the_rehearsal_stay(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    wish = plan(
        *("--until-step=17", "--nproc-per-node", "2", "--kill", "rank=1@step=3", "--json"),
        *("--snapshot-every=5", str(script), "--seed", "4"),
    )
    assert wish.words == ("--nproc-per-node", "2", "--snapshot-every=5", str(script), "--seed", "4")
    assert (wish.until, wish.every, wish.world_size, wish.seed) == (20, 5, 2, 0)
    assert wish.holds == (3, 5, 10, 15, 20)
    assert plan(str(script), "out/{training}").words_for("again") == [str(script), "out/again"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--storage", "/tmp/x"), "--storage: each training of a rehearsal gets its own"),
        (("--rdzv_id=x",), "--rdzv-id: each"),
        (("--kill", "rank=7@step=3"), "there are only 1"),
        (("--kill", "rank=0@step=40"), "the run has steps 0 to 29"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(flags: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match=said):
        plan(*flags, str(tmp_path / "train.py"))


def test_training_is_held_until_each_step_is_released(tmp_path: Path) -> None:
    holds = Holds.read(f"{tmp_path}/a:b:10,20")
    assert holds == Holds(tmp_path / "a:b", (10, 20)) and str(holds) == f"{tmp_path}/a:b:10,20"
    assert [holds.holding(step) for step in (9, 10, 11)] == [False, True, True]
    holds.release(10)
    assert [holds.holding(step) for step in (10, 19, 20)] == [False, False, True]
    assert Holds.read("") is None


def manifest(digest: str, state: object, shape: tuple[int, ...] = (2,)) -> Manifest:
    tensor = Tensor("model.w", "float32", shape, 0, 8)
    shard = ManifestShard("all", (0, 1), 8, (tensor,), ((Piece(0, 0, 8),),), {"objects": typed.encode(state)})
    chunk = Chunk(digest, 8, 8, "none")
    return Manifest("j", "4-1", 4, 1, "full", "4-1", ((0, 4),), "0", (chunk,), (shard,))


def test_tensors_and_plain_data_that_differ_are_named() -> None:
    state = {"schedule": {"lr": [0.1, float("nan")], "steps": 3}}
    other = {"schedule": {"lr": [0.1, float("nan")], "steps": 4, "warm": True}}
    one = manifest("a" * 64, state)
    assert differences.between(one, manifest("a" * 64, state), {}, {}) == []
    found = differences.between(one, manifest("b" * 64, other), {}, {})
    assert [(each.name, each.what) for each in found] == [
        ("model.w", "changed"),
        ("schedule.steps", "3 and 4"),
        ("schedule.warm", "added"),
    ]
    assert differences.tensors(one) == 1


def test_what_a_state_says_of_failures_is_not_compared() -> None:
    states = [{"log": {"state": {"lines": "[5]", OF_FAILURES: each}}} for each in ("[]", "[[5, 2]]")]
    one, other = (manifest("a" * 64, state) for state in states)
    assert differences.between(one, other, {}, {}) == []


def test_what_the_script_had_made_before_is_not_compared() -> None:
    """It is no state of the training: new processes warn of what they have otherwise."""
    one = manifest("a" * 64, {"steps": 3})
    (shard,) = one.shards
    rows = [
        dataclasses.replace(one, shards=(dataclasses.replace(shard, state=shard.state | {"began": began}),))
        for began in ("1:abc", "1:abd")
    ]
    assert differences.between(rows[0], rows[1], {}, {}) == []


def test_what_is_in_a_text_is_compared_by_itself() -> None:
    rows = [
        json.dumps(
            {"took_s": took, "folder": f"/tmp/out-{name}/x", "best": best, "more": json.dumps([1, best])}
        )
        for took, name, best in ((1.5, "undisturbed", 3), (1.7, "disturbed", 4))
    ]
    one, other = (manifest("a" * 64, {"log": f"first\n{row}\nlast", "row": row}) for row in rows)
    names = ["took_s", "best", "more[1]"]
    places = {"out-undisturbed": "out-{training}"}, {"out-disturbed": "out-{training}"}
    assert [each.name for each in differences.between(one, other, *places)] == [
        *(f"log[1].{name}" for name in names),
        *(f"row.{name}" for name in names),
    ]
    assert "row.folder" in [each.name for each in differences.between(one, other, {}, {})]


def test_typed_data_in_bytes_is_compared_by_itself() -> None:
    rows = [
        json.dumps(typed.encode({"path": f"/{name}/x", "counts": {"batches": count}})).encode()
        for name, count in (("undisturbed", 3), ("disturbed", 4))
    ]
    one, other = (manifest("a" * 64, {"rows": [row, b"\xff"]}) for row in rows)
    found = differences.between(one, other, {"undisturbed": "{training}"}, {"disturbed": "{training}"})
    assert [(each.name, each.what) for each in found] == [("rows[0].counts.batches", "3 and 4")]


def test_the_folders_of_one_training_are_known(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    asked = plan("--nproc-per-node", "2", str(script), "--to=out/{training}/x", "{training}", "--lr", "1")
    assert asked.places_of("again") == {"out/again/x": "out/{training}/x", "again": "{training}"}


def test_long_values_are_shown_where_they_differ() -> None:
    one, other = (manifest("a" * 64, {"log": "x" * 90 + each + "y" * 90}) for each in ("1.5", "1.7"))
    (found,) = differences.between(one, other, {}, {})
    assert found.place == ("log", "all") and not found.is_tensor
    left, right = found.what.split(" and ")
    assert left.startswith("...xx") and "1.5" in left and "1.7" in right and len(found.what) < 120


def result(differing: list[Difference], unsteady: list[Difference] | None = None) -> report.Rehearsed:
    blow = KillResult(PlannedKill("rank", 4, 1), 5, 1, hit=(1,), at_ns=1)
    verdict = {"scope": "rank", "cause": "signaled", "ranks": [1], "step": 5}
    incident = {"id": 1, "verdict": verdict, "lost_steps": 2, "phases_s": [], "outcome": "recovered"}
    line = {"type": "IncidentChanged", "term": 1, "monotonic_s": 5.0, "body": {"incident": incident}}
    return report.Rehearsed(20, [blow], differing, 8, [line], ["w is not tracked"], unsteady)


def test_the_answer_names_what_differs_and_whose_doing_it_is() -> None:
    differing = [Difference(f"w{at}", "all", "changed", is_tensor=True) for at in range(report.SHOWN + 2)]
    times = [Difference("log.took_s", "all", "1.5 and 1.7")]
    exact, own = result([]), result(differing, differing)
    forgotten, timed = result([*differing, *times], times), result(times, times)
    every = (exact, own, forgotten, timed)
    said = ["\n".join(text for text, _ in report.lines(each)) for each in every]
    for each in said:
        assert "in step 4, while in step 5: 2 steps lost" in each and "w is not tracked" in each
    assert "yes, byte for byte: 8 tensors" in said[0]
    assert "NO, after step 20" in said[1] and "without failures either" in said[1] and "and 2 more" in said[1]
    assert "What you forget to track" in said[2] and "took_s" not in said[2] and "and 2 more" in said[2]
    assert "byte for byte" in said[3] and "without failures, too: log.took_s of all (1.5 and 1.7)" in said[3]
    assert [each.exact for each in every] == [True, False, False, True]
    assert [report.as_json(each)["reproducible"] for each in every] == [None, False, True, True]


def test_warnings_of_the_sdk_are_taken_from_the_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    warning = "train, line 3: 'best' changes: the training comes out differently when a rank dies"
    log.write_text(f"[n0 0] {warning}\n[n0 0] loss 3\n[n0 0] {warning}\n")
    assert report.warnings_of(log) == [warning]
