"""That all collectives have ended is seen in the flight recorder's text, and only where it says so."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.agreement.collectives import plainly_ended, unended_in

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = """
import sys
import time
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from holdfast.groups import flight_recorder

flight_recorder.enable()
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(2))
late = time.monotonic() + 60
while '"last_completed_collective":"3"' not in (shown := c10d._dump_fr_trace_json(False, True).decode()):
    assert time.monotonic() < late, shown
    time.sleep(0.01)  # gloo's thread notes the end after all_reduce has returned
print(shown)
dist.destroy_process_group()
"""


def text(*counts: tuple[str, str], **more: str) -> bytes:
    """What torch writes: keys in their order, no blanks. `counts`: ended and begun, by group."""
    status = {
        str(group): {
            "last_completed_collective": ended,
            "last_enqueued_collective": begun,
            "last_started_collective": "-1",
        }
        for group, (ended, begun) in enumerate(counts)
    }
    groups = {"pg_config": {"": {"desc": "", "name": "", "ranks": "[0, 1]"}}, "pg_status": status, **more}
    return json.dumps(groups, separators=(",", ":"), sort_keys=True).encode()


def test_groups_whose_newest_collective_has_ended_are_seen() -> None:
    assert plainly_ended(text(("12", "12")))
    assert plainly_ended(text(("12", "12"), ("-1", "-1"), ("3", "3"), version="2.10"))


@pytest.mark.parametrize(
    "shown",
    [
        text(("11", "12")),
        text(("12", "12"), ("1", "12")),
        text(("12", "123")),
        text(("123", "12")),
        text(),
        b"{}",
        b"",
        b'{"pg_status":{"0":{"last_completed_collective":"12"}}}',
        b'{"pg_status":{"0":{"last_enqueued_collective":"12","last_completed_collective":"12"}}}',
        b'{"pg_status": {"0": {"last_completed_collective": "12", "last_enqueued_collective": "12"}}}',
    ],
)
def test_anything_else_has_to_be_parsed(shown: bytes) -> None:
    assert not plainly_ended(shown)


ENDED, BEGUN, NONE = text(("12", "12")), text(("3", "3"), ("11", "12")), text()


@pytest.mark.parametrize(
    ("texts", "late"),
    [
        ((ENDED,), set()),
        ((BEGUN,), {"0/1"}),
        ((ENDED, NONE), set()),
        ((NONE, ENDED), set()),
        ((ENDED, ENDED), set()),
        ((ENDED, BEGUN), {"1/1"}),
        ((BEGUN, NONE), {"0/1"}),
        ((BEGUN, BEGUN), {"0/1", "1/1"}),
        ((NONE,), None),
        ((NONE, NONE), None),
        ((), None),
    ],
)
def test_every_recorder_counts(texts: tuple[bytes, ...], late: set[str] | None) -> None:
    """A build with CUDA keeps the groups of NCCL apart from those of gloo."""
    assert unended_in(texts) == late


def test_what_torch_writes_is_understood(tmp_path: Path) -> None:
    """If torch writes it otherwise one day, each step parses it again: slower, and no less right."""
    command = [sys.executable, "-c", RECORDED, str(tmp_path / "store")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert json.loads(shown)["pg_status"] and plainly_ended(shown.encode())
