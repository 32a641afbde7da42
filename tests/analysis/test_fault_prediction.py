"""Predictions of faults: what they know, how they are scored, and what is made of odd files."""

from __future__ import annotations

import itertools
import json
import math
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from controlplane.analysis.prediction import echoes, forecast, risks
from controlplane.analysis.prediction.history import FaultHistory
from controlplane.analysis.prediction.scores import ranked, scores, top
from tests.analysis import histories

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES, DAYS, UNTIL = 120, 120.0, 60


def history(of: list[tuple[str, float, float]], nodes: int) -> FaultHistory:
    names = tuple(dict.fromkeys(name for name, *_ in of))
    number = {name: at for at, name in enumerate(names)}
    return FaultHistory(
        nodes,
        names,
        np.array([number[name] for name, *_ in of], dtype=np.int64),
        np.array([begin for _, begin, _ in of]),
        np.array([end for *_, end in of]),
    )


@pytest.fixture
def predicted(said: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    """Predict from a file, and return the object for programs."""

    def run(path: Path, *words: object, nodes: int = NODES, until: int = UNTIL) -> dict[str, Any]:
        found = json.loads(said("--faults", path, "--nodes", nodes, "--train-until", until, "--json", *words))
        assert isinstance(found, dict)
        return found

    return run


@pytest.mark.parametrize("cut", [75.0, 90.5, 101.0])
def test_a_risk_uses_nothing_after_its_day(
    cut: float, predicted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """A file that is cut off gives the same risks on all days that it has."""
    made = histories.faults(3, NODES, DAYS)
    whole = predicted(histories.as_json(tmp_path / "whole.json", made))
    part = predicted(histories.as_json(tmp_path / "part.json", made, until=cut))
    last = math.floor(part["observed_until_day"])
    assert UNTIL < last <= cut and part["model"] == whole["model"]
    known = {each["node"] for each in part["risks"] if not each["node"].startswith("never")}

    def rows(found: dict[str, Any], day: int) -> tuple[dict[str, float], list[float]]:
        """Risks of nodes with names, and the sorted ones of those that had not failed by the cut."""
        today = [each for each in found["risks"] if each["day"] == day]
        named = {each["node"]: each["risk"] for each in today if each["node"] in known}
        return named, sorted(each["risk"] for each in today if each["node"] not in known)

    for day in range(UNTIL + 1, last + 1):
        assert rows(whole, day) == rows(part, day), day
    assert not any(each["day"] > last for each in part["risks"])


def test_all_nodes_that_are_up_have_a_risk_and_no_others(
    predicted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    made = [("a", 1.0, 2.0), ("b", 3.0, 3.5), ("a", 4.5, 8.25), ("c", 9.0, math.inf), ("b", 12.0, 12.5)]
    path = tmp_path / "few.csv"
    path.write_text(
        "node_id,start_day,end_day\n"
        + "".join(f"{name},{begin},{'' if end == math.inf else end}\n" for name, begin, end in made)
    )
    found = predicted(path, "--horizon-days", 3, nodes=5, until=4)
    there = {(each["day"], each["node"]) for each in found["risks"]}
    everybody = {"a", "b", "c", "never-failed-1", "never-failed-2"}
    down = {*((day, "a") for day in (5, 6, 7, 8)), *((day, "c") for day in (9, 10, 11, 12)), (12, "b")}
    assert there == set(itertools.product(range(5, 13), everybody)) - down
    assert len(there) == len(found["risks"]) and all(0 < each["risk"] < 1 for each in found["risks"])
    assert found["scored"]["node_days_failing"] == 4  # c on days 6 to 8, b on day 9
    assert found["scored"]["last_day"] == 9


def test_only_new_faults_count() -> None:
    """A node that is down is not at risk; one whose fault begins just then has not failed anew."""
    of = history([("a", 1.0, 5.0), ("b", 2.0, 2.5)], 2)
    assert of.up(1.0).tolist() == [False, True] and of.up(5.0).tolist() == [True, True]
    assert of.fails_within(1.0, 1.0).tolist() == [False, True]
    assert of.fails_within(2.0, 7.0).tolist() == [False, False]


def test_rates_that_were_planted_are_found() -> None:
    made = histories.faults(12, 2000, 400.0)
    found = echoes.fit(history(made, 2000), 400.0)
    assert found.background == pytest.approx(histories.BACKGROUND, rel=0.05)
    assert sum(found.alphas) == pytest.approx(histories.SEQUELS, rel=0.1)
    assert found.alphas[0] < 0.05  # of the fast constant, which the histories do not have


def test_echoes_beat_the_baseline_where_faults_echo() -> None:
    of = history(histories.faults(5, 400, 250.0), 400)
    found = forecast.predict(of, 120, 7, np.random.default_rng(1)).scored
    assert found is not None
    better = found.differences[risks.OURS]
    for name in ("roc_auc", "average_precision"):
        for interval in (better[name].by_nodes, better[name].by_days):
            assert interval is not None and interval[0] > 0.0, name
    assert better["brier"].value is not None and better["brier"].value < 0.0


def test_nothing_is_predicted_where_faults_come_by_pure_chance() -> None:
    of = history(histories.faults(6, 400, 250.0, sequels=0.0), 400)
    found = forecast.predict(of, 120, 7, np.random.default_rng(1))
    assert found.scored is not None
    area = found.scored.scores[risks.OURS]["roc_auc"]
    assert area.value is not None and area.by_nodes is not None
    assert area.by_nodes[0] < 0.5 < area.by_nodes[1]
    ours = found.node_days.risk[risks.OURS]
    assert float(np.quantile(ours, 0.99) / np.median(ours)) < 2.5


def test_scores_are_those_of_their_definitions() -> None:
    """Against all pairs, and all thresholds, with equal risks and rows that count several times."""
    chance = Random(9)
    risk = [chance.choice((0.1, 0.2, 0.3, 0.4)) for _ in range(60)]
    failing = [chance.random() < value for value in risk]
    times = [chance.randrange(3) for _ in risk]
    rows = [(r, f) for r, f, n in zip(risk, failing, times, strict=True) for _ in range(n)]
    found = scores(
        ranked(np.array(risk), np.array(risk), np.array(failing), {}), np.array(times, dtype=np.float64)
    )
    bad, good = [r for r, f in rows if f], [r for r, f in rows if not f]
    pairs = [(b > g) + 0.5 * (b == g) for b in bad for g in good]
    assert found["roc_auc"] == pytest.approx(sum(pairs) / len(pairs))
    precision = {at: sum(f for r, f in rows if r >= at) / sum(r >= at for r, _ in rows) for at in set(risk)}
    assert found["average_precision"] == pytest.approx(sum(precision[b] for b in bad) / len(bad))
    assert found["brier"] == pytest.approx(sum((r - f) ** 2 for r, f in rows) / len(rows))


def test_of_equal_risks_each_is_flagged_in_part() -> None:
    day = np.array([1, 1, 1, 1, 2, 2])
    flagged = top(day, np.array([0.5, 0.2, 0.2, 0.1, 0.3, 0.3]), np.array([2.0, 3.0]))
    assert flagged.tolist() == [1.0, 0.5, 0.5, 0.0, 1.0, 1.0]


def test_where_nobody_failed_scores_are_not_known(
    predicted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "early.csv"
    path.write_text("node_id,start_day,end_day\na,1,40\n")
    found = predicted(path, nodes=3, until=5)
    assert found["scored"]["scores"]["echoes"]["roc_auc"] == {
        "value": None,
        "interval_by_nodes": None,
        "interval_by_weeks": None,
    }
    assert found["scored"]["base_rate"] == 0.0


def test_a_horizon_that_is_not_over_is_not_scored(
    predicted: Callable[..., dict[str, Any]], said: Callable[..., str], tmp_path: Path
) -> None:
    path = histories.as_json(tmp_path / "short.json", histories.faults(2, NODES, 40.0))
    found = predicted(path, until=33)
    assert found["scored"] is None and found["no_better_than_baseline"] is None and found["risks"]
    assert "not scored" in said("--faults", path, "--nodes", NODES, "--train-until", 33)


def test_the_seed_changes_intervals_and_nothing_else(
    predicted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    path = histories.as_json(tmp_path / "f.json", histories.faults(3, NODES, DAYS))
    once, again, other = (predicted(path, "--seed", seed) for seed in (1, 1, 2))
    assert once == again and once["risks"] == other["risks"]
    area, others = (each["scored"]["scores"]["echoes"]["roc_auc"] for each in (once, other))
    assert area["value"] == others["value"] and area["interval_by_nodes"] != others["interval_by_nodes"]


def test_people_are_shown_the_riskiest_and_the_scores(said: Callable[..., str], tmp_path: Path) -> None:
    path = histories.as_json(tmp_path / "f.json", histories.faults(3, NODES, DAYS))
    text = said("--faults", path, "--nodes", NODES, "--train-until", UNTIL)
    assert "nodes most likely to fail within 7 days" in text and "average_precision" in text
    assert "the baseline in" in text and "intervals: 95%" in text


EVENT = {"node_id": "a", "event_time": 1.0, "event_type": "fault_start"}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "", "is empty"),
        ("a.json", json.dumps([EVENT])[:-4], "is no JSON"),
        ("a.json", json.dumps({"events": []}), "holds a dict: give a list of events"),
        ("a.json", json.dumps([{**EVENT, "event_time": math.nan}]), "event_time nan is no time: give days"),
        ("a.json", json.dumps([{**EVENT, "event_time": 10**400}]), "is no time: give days"),
        ("a.json", json.dumps([{**EVENT, "event_time": 1e6}]), "36500 at most: give times in days"),
        ("a.json", json.dumps([{**EVENT, "event_type": "fault"}]), "event_type 'fault' is unknown"),
        ("a.json", json.dumps([{"node": "a", **EVENT, "node_id": None}]), "node_id None names no node"),
        ("a.json", json.dumps([{**EVENT, "node_id": str(at)} for at in range(9)]), "give --nodes 9 or more"),
        ("a.json", "[" * 100_000, "nested too deep"),
        ("a.csv", "node_id,begin,end_day\na,1,2\n", "start_day is missing"),
        ("a.csv", "node_id,start_day,end_day\na,nan,2\n", "column start_day, row 1: nan"),
        ("a.csv", "node_id,start_day,end_day\na,1,2\nb,5,3\n", "row 2: the fault ends on day 3, before it"),
        ("a.csv", "node_id,start_day,end_day\na,1,soon\n", "column end_day, row 1: 'soon' is no number"),
        ("a.csv", "node_id,start_day,end_day\n,1,2\n", "column node_id, row 1: it is empty"),
        ("a.csv", "node_id,start_day,end_day\na,1\n", "row 1: 2 values for 3 columns"),
        (
            "a.csv",
            "node_id,start_day,end_day\n" + "".join(f"n{at},1,2\n" for at in range(9)),
            "give --nodes 9 or more",
        ),
        ("a.csv", "node_id,start_day,end_day\na,1,2\n", "ends on day 2: give --train-until 1 or less"),
        ("a.csv", "\x00\x01\xff", "CSV in UTF-8"),
    ],
)
def test_files_that_are_refused(
    name: str, text: str, reason: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    line = refused("--faults", path, "--nodes", 5, "--train-until", 3)
    assert str(path) in line and reason in line


def test_flags_that_are_missing_or_of_another_kind(refused: Callable[..., str], tmp_path: Path) -> None:
    path = histories.as_json(tmp_path / "f.json", histories.faults(3, NODES, DAYS))
    assert "--faults needs --nodes N" in refused("--faults", path, "--train-until", 5)
    assert "--faults needs --train-until DAY" in refused("--faults", path, "--nodes", NODES)
    assert "--train-until is for --faults" in refused("--logs", tmp_path, "--train-until", 5)


def test_more_risks_than_fit_are_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    path = histories.as_json(tmp_path / "f.json", histories.faults(3, NODES, DAYS))
    assert "more than 5000000 risks" in refused("--faults", path, "--nodes", 100_000, "--train-until", 60)


def test_faults_that_overlap_are_one_and_that_is_said(
    predicted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "over.csv"
    path.write_text("node_id,start_day,end_day\na,1,6\na,5,9\nb,20,21\n")
    found = predicted(path, nodes=2, until=3)
    assert found["faults"] == 2
    assert found["notes"] == ["1 faults that overlap another of the same node: taken as one"]
    assert not any(each["node"] == "a" and each["day"] < 9 for each in found["risks"])
