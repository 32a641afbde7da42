"""Dashboards of Grafana: what every query is narrowed by; links, marks, limits and words of panels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
import yaml

from tests.monitoring.builders import DASHBOARDS, load, needs_promtool, promtool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(where, expression) of every panel and annotation."""
    for panel in board["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    for mark in board["annotations"]["list"]:
        yield f"annotation {mark['name']}", mark["expr"]


def selectors(expression: str) -> list[tuple[str, set[tuple[str, str]]]]:
    """(metric, matchers as label and value) of every selector."""
    found = []

    def visit(node: Any) -> bool:
        vector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(vector, promql_parser.VectorSelector):
            matchers = {
                (each.name, each.value)
                for each in vector.matchers.matchers
                if each.op == promql_parser.MatchOp.Re
            }
            found.append((str(vector.name), matchers))
        return True

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "5m")), visit)
    return found


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_obeys_the_namespace_and_the_job(name: str) -> None:
    about_jobs = load("catalog").about_jobs() | {
        record for record in load("rules").RECORDS if record.startswith("training_job:")
    }
    board = BOARDS[name]
    narrowed = 0
    for where, expression in queries(board):
        for metric, matchers in selectors(expression):
            assert ("namespace", "$namespace") in matchers, (where, metric)
            if metric in about_jobs:
                narrowed += 1
                assert ("training_job", "$training_job") in matchers, (where, metric)
    assert narrowed
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert {"datasource", "namespace", "training_job"} <= set(variables)
    for each in variables.values():
        assert each["type"] == "datasource" or (each["multi"] and each["allValue"] == ".*")


def test_every_panel_of_a_jobs_board_is_about_jobs() -> None:
    for where, expression in queries(BOARDS["job"]):
        assert 'training_job=~"$training_job"' in expression, where


def test_jobs_of_one_name_in_two_namespaces_are_two() -> None:
    for board in BOARDS.values():
        for where, expression in queries(board):
            assert "by (training_job" not in expression, where


@pytest.mark.parametrize("name", BOARDS)
def test_boards_lead_to_each_other_and_mark_incidents(name: str) -> None:
    board = BOARDS[name]
    (link,) = board["links"]
    assert link["type"] == "dashboards" and set(link["tags"]) <= set(board["tags"])
    assert link["includeVars"] and link["keepTime"]
    marks = {mark["name"]: mark for mark in board["annotations"]["list"]}
    assert set(marks) == {"Incidents", "Planned changes"}
    assert len({mark["iconColor"] for mark in marks.values()}) == 2
    assert all(mark["enable"] and mark["step"] and mark["titleFormat"] for mark in marks.values())


def test_a_series_leads_to_the_board_of_its_job() -> None:
    panels = {panel["title"]: panel for panel in BOARDS["fleet"]["panels"]}
    for title in ("Goodput", "ETTR of a day"):
        (link,) = panels[title]["fieldConfig"]["defaults"]["links"]
        assert link["url"].startswith(f"/d/{BOARDS['job']['uid']}?")
        assert "var-training_job=${__field.labels.training_job}" in link["url"]


def panels_with(part: str) -> dict[str, Any]:
    """What a field of the panels says, by board and title."""
    return {
        f"{name}: {panel['title']}": panel["fieldConfig"]["defaults"][part]
        for name, board in BOARDS.items()
        for panel in board["panels"]
        if panel["fieldConfig"]["defaults"].get(part)
    }


def test_limits_are_those_of_the_alerts_and_grow() -> None:
    limits = load("rules").THRESHOLDS
    found = {where: each["steps"] for where, each in panels_with("thresholds").items()}
    expected = {
        "fleet: Goodput": "goodputLow",
        "fleet: Time to recover": "recoverySlowSeconds",
        "fleet: Lag of the coordinators": "coordinatorLateSeconds",
        "job: Failed checkpoints in a row": "checkpointsFailing",
        "job: Age of the newest copy": "checkpointStaleSeconds",
    }
    for where, limit in expected.items():
        assert found[where][-1]["value"] == limits[limit], where
    for where, steps in found.items():
        values = [step["value"] for step in steps]
        assert values[0] is None and values[1:] == sorted(values[1:]), where


def test_values_that_are_words_are_shown_as_words() -> None:
    found = {
        where: {value: each["text"] for value, each in mappings[0]["options"].items()}
        for where, mappings in panels_with("mappings").items()
    }
    assert found["fleet: Leader"] == {"0": "none", "1": "one leads", "2": "two claim to lead"}
    assert found["node: Connected"] == {"0": "no", "1": "yes"}
    assert found["node: Devices"] == {"0": "bad", "1": "healthy"}


def chosen(expression: str, namespace: str, job: str) -> str:
    """The query as Grafana sends it."""
    for name, value in {"namespace": namespace, "training_job": job, "node": ".*"}.items():
        expression = expression.replace(f"${name}", value)
    return expression.replace("$__rate_interval", "5m")


@needs_promtool
def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    asked = [chosen(query, ".*", ".*") for board in BOARDS.values() for _, query in queries(board)]
    rules = [{"record": f"asked:{index}", "expr": query} for index, query in enumerate(asked)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(path))


_ENDED = 'namespace="a",training_job="j",outcome="recovered"'
SERIES = {
    'holdfast_step{namespace="a",training_job="j",instance="x"}': "5x20",
    'holdfast_step{namespace="a",training_job="k",instance="x"}': "6x20",
    'holdfast_step{namespace="b",training_job="j",instance="y"}': "7x20",
    'holdfast_step{training_job="j",instance="z"}': "8x20",
    f'holdfast_incidents_total{{{_ENDED},whose="cluster",strategy="spare"}}': "0x5 1x15",
    f'holdfast_incidents_total{{{_ENDED},whose="plan",strategy="grow"}}': "0x5 1x15",
}


@needs_promtool
def test_what_prometheus_answers_is_of_what_was_chosen(tmp_path: Path) -> None:
    step = dict(queries(BOARDS["job"]))["Step"]
    mark = dict(queries(BOARDS["job"]))["annotation Incidents"]
    incident = '{namespace="a",outcome="recovered",strategy="spare",training_job="j",whose="cluster"}'
    every: dict[str, float] = {'{training_job="j"}': 8, '{namespace="a",training_job="j"}': 5}
    every |= {'{namespace="a",training_job="k"}': 6, '{namespace="b",training_job="j"}': 7}
    cases: list[tuple[str, str, dict[str, float]]] = [
        (chosen(step, "a", "j"), "10m", {'{namespace="a",training_job="j"}': 5}),
        (chosen(step, "a|b", "j"), "10m", {label: v for label, v in every.items() if v in (5, 7)}),
        (chosen(step, ".*", ".*"), "10m", every),
        (chosen(mark, ".*", ".*").replace("[1m]", "[2m]"), "6m", {incident: 1}),
        (chosen(mark, "b", "j").replace("[1m]", "[2m]"), "6m", {}),
    ]
    tests = [
        {
            "expr": query,
            "eval_time": moment,
            "exp_samples": [{"labels": labels, "value": value} for labels, value in found.items()],
        }
        for query, moment, found in cases
    ]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    document = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}]}
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", str(path))
