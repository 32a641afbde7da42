"""Checkpoints that are there already when a run begins: gone on from, left beside, or adopted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from agent.checkpoint import names
from agent.checkpoint.store import Store
from controlplane.cli.local.layout import make_layout
from controlplane.cli.local.lives import Beginning, current_life, passed_over, remember
from controlplane.core.model import JobSpec

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lost_state_folder_is_told_of_and_adopting_keeps_the_name(tmp_path: Path) -> None:
    layout = make_layout("j", str(tmp_path / "state"), once=False, shm_dir=str(tmp_path))
    spec, plain = JobSpec("j", ("x",), str(tmp_path), storage=f"file://{tmp_path}/s"), Beginning()
    first = current_life(layout, spec, plain, knows_nothing=True)
    assert first == spec and passed_over(layout, spec, first, plain) == ""
    Store.open(spec.storage).put(names.manifest("j", "10-1"), b"{}")
    (layout.state / "etcd").mkdir(parents=True)
    remember(layout, first)
    assert current_life(layout, spec, plain, knows_nothing=True) == spec, "etcd knows them"
    shutil.rmtree(layout.state)
    beside = current_life(layout, spec, plain, knows_nothing=True)
    assert beside.job == "j-life1"
    assert "--adopt goes on from them" in passed_over(layout, spec, beside, plain)
    adopting = Beginning(adopt=True)
    assert current_life(layout, spec, adopting, knows_nothing=True) == spec
    Store.open(spec.storage).put(names.manifest("j-life1", "20-1"), b"{}")
    assert current_life(layout, spec, adopting, knows_nothing=True).job == "j-life1", "the last life"
    fresh = Beginning(fresh=True)
    anew = current_life(layout, spec, fresh, knows_nothing=True)
    assert anew.job == "j-life2" and passed_over(layout, spec, anew, fresh) == ""
