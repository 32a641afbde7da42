"""docs/security.md names tests that exist, methods and flags as they are."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from controlplane.access.callers import CallerRole
from controlplane.access.roles import RULES
from controlplane.settings import AgentSettings, CallerSettings, CoordinatorSettings
from tests.security.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
ELSEWHERE = {"--env", "--json", "--messages", "--seed", "--target", "--check", "--require-hashes"}


def test_every_test_that_is_named_exists() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 30
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_every_flag_that_is_named_exists() -> None:
    kinds = (AgentSettings, CallerSettings, CoordinatorSettings)
    flags = {f"--{field.name.replace('_', '-')}" for kind in kinds for field in dataclasses.fields(kind)}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - flags - ELSEWHERE == set()


def test_every_method_of_admin_is_told_of() -> None:
    rows = tuple(f"| {role}" for role in CallerRole)
    told = "\n".join(line for line in TEXT.splitlines() if line.startswith(rows))
    for method, rule in RULES.items():
        if ".control." in method:
            assert method.rpartition("/")[2] in told
            assert rule.roles <= set(CallerRole)


def test_every_target_of_the_fuzz_is_told_of() -> None:
    assert "targets " + ", ".join(TARGETS) in " ".join(TEXT.split())
