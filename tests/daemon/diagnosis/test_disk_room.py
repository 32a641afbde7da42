"""Room on disks that agents report reaches the diagnosis, and a disk that fills is named to the core."""

from __future__ import annotations

import re
from dataclasses import replace

from controlplane.core.records.diagnosis import NodeDisks
from tests.daemon.diagnosis.stage import EVERY_S, STEPS, Stage
from tests.daemon.diagnosis.test_diagnosing import newest

GIB = 1 << 30


async def test_a_disk_that_fills_on_one_node_is_named() -> None:
    stage = Stage()
    free = 22.0 * GIB
    for _ in range(round(2400 / EVERY_S)):
        stage.wall_s += EVERY_S
        stage.step += STEPS
        free -= 0.005 * GIB * EVERY_S
        for times in stage.times({}):
            left = round(free) if times.node == "b" else 20 * GIB
            disks = NodeDisks(("/ckpt",), ("checkpoints",), (left,), (100 * GIB,))
            stage.diagnosis.take(replace(times, disks=disks))
        await stage.diagnosis.look()
    (found,) = [each for each in newest(stage) if each.kind == "disk_filling"]
    assert (found.subject, found.node) == ("disk /ckpt of node b", "b")
    assert found.level == "critical"
    assert re.search(r"it is full in [\d.]+ hours, at \d{4}-\d\d-\d\d \d\d:\d\d UTC$", found.reason)
