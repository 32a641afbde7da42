"""A default that both the command line and the decision core know stands once: in the core's settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.coordinator import core_settings
from controlplane.settings import CoordinatorSettings

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_IN = ("decision_settings.py", "kube_settings.py")


def test_both_have_the_same_defaults() -> None:
    assert core_settings(CoordinatorSettings()) == CoreSettings()


def test_no_default_is_written_twice() -> None:
    names = {field.name for field in dataclasses.fields(CoordinatorSettings)}
    shared = sorted(names & {field.name for field in dataclasses.fields(CoreSettings)})
    assert len(shared) == 27
    text = "".join((ROOT / "controlplane" / name).read_text() for name in WRITTEN_IN)
    assert [name for name in shared if f"_CORE.{name}," not in text] == []
