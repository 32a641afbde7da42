"""The alerts' thresholds, the prefix of their names and their runbooks are values of the chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.chart import ETCD, MONITORING, one, rendered
from tests.monitoring.builders import load


def rules(**own: Any) -> list[dict[str, Any]]:
    """The alerts, for these values."""
    values = {**ETCD, "monitoring": {"prometheusRule": {"enabled": True, **own}}}
    (_, group) = one(rendered(values, (MONITORING,)), "PrometheusRule")["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def alerts(**thresholds: float) -> dict[str, str]:
    """Expressions by the alerts' names."""
    found = rules(**({"thresholds": thresholds} if thresholds else {}))
    return {each["alert"]: each["expr"] for each in found}


def test_the_defaults_are_the_files() -> None:
    shipped = load("rules").groups()["groups"][1]["rules"]
    assert {name: text.split() for name, text in alerts().items()} == {
        each["alert"]: each["expr"].split() for each in shipped
    }


@pytest.mark.parametrize(
    ("name", "value", "alert", "words"),
    [
        ("checkpointsFailing", 5, "HoldfastCheckpointsFailing", ">= 5"),
        ("goodputLow", 0.65, "HoldfastGoodputLow", "< 0.65"),
        ("trainingStalledSeconds", 3600, "HoldfastTrainingStalled", "> 3600"),
    ],
)
def test_a_value_takes_its_place(name: str, value: float, alert: str, words: str) -> None:
    assert words in alerts(**{name: value})[alert]
    assert not [text for text in alerts(**{name: value}).values() if "@" in text]


def test_prefix_and_runbooks_are_values_and_nothing_else_changes() -> None:
    shipped = load("rules").groups()["groups"][1]["rules"]
    found = rules(alertPrefix="TeamA", runbookUrl="https://wiki.example/holdfast")
    assert len(found) == len(shipped)
    for ours, theirs in zip(found, shipped, strict=True):
        assert ours["alert"] == theirs["alert"].replace("Holdfast", "TeamA", 1)
        page = f"https://wiki.example/holdfast/{theirs['alert']}.md"
        assert ours["annotations"] == {**theirs["annotations"], "runbook_url": page}
        assert ours["expr"].split() == theirs["expr"].split()
        assert (ours["for"], ours["labels"]) == (theirs["for"], theirs["labels"])
    assert "@" not in str(found)
