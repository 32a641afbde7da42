"""Flags that are made from settings: names that were replaced are still accepted."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.settings import add_settings, from_environment, given
from controlplane.decision_settings import DecisionSettings
from controlplane.setting import SettingsError, check


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--faulty-node-score", "lemon_score"),
        ("--lemon-score", "lemon_score"),
        ("--guard-max-s", "brake_max_s"),
        ("--brake-max-s", "brake_max_s"),
    ],
)
def test_the_new_and_the_old_flag_set_the_same(flag: str, name: str) -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, DecisionSettings)
    assert given(DecisionSettings, parser.parse_args([flag, "5"])) == {name: 5.0}


def test_what_a_flag_may_not_be_is_said_by_the_name_that_help_shows() -> None:
    with pytest.raises(SettingsError, match=r"^--check-nodes-again-s 0.0 is too small: give 10"):
        check(dataclasses.replace(DecisionSettings(), check_again_s=0.0))
    with pytest.raises(SettingsError, match=r"^--check-nodes 'x' is not one of off, "):
        check(dataclasses.replace(DecisionSettings(), check_nodes="x"))


def test_a_number_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STOP_TIMEOUT_S", "12.5")
    assert from_environment(DecisionSettings) == {"stop_timeout_s": 12.5}
    monkeypatch.setenv("HOLDFAST_STOP_TIMEOUT_S", "soon")
    with pytest.raises(UsageError, match="HOLDFAST_STOP_TIMEOUT_S=soon"):
        from_environment(DecisionSettings)
