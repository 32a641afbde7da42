"""The alerts' thresholds are values of the chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.chart import ETCD, MONITORING, one, rendered
from tests.monitoring.builders import load


def alerts(**thresholds: float) -> dict[str, str]:
    """Expressions by the alerts' names."""
    rule: dict[str, Any] = {"enabled": True}
    rule |= {"thresholds": thresholds} if thresholds else {}
    values = {**ETCD, "monitoring": {"prometheusRule": rule}}
    (_, group) = one(rendered(values, (MONITORING,)), "PrometheusRule")["spec"]["groups"]
    return {each["alert"]: each["expr"] for each in group["rules"]}


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
