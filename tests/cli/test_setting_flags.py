"""Flags that are made from settings: names that were replaced are still accepted."""

from __future__ import annotations

import argparse

import pytest

from controlplane.cli.flags.settings import add_settings, given
from controlplane.decision_settings import DecisionSettings


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
