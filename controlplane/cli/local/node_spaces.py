"""Say in which network each node of a cluster on one machine is. Nothing heavy: `run --help` loads it."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class NodeSpace:
    """Where a node is: in the network namespace of process `pid`, with this address."""

    pid: int
    address: str

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` there."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *argv]


def read_spaces(text: str) -> tuple[str, tuple[NodeSpace, ...]]:
    """Parse `ADDRESS,PID=ADDRESS,...`: of the coordinator, and of each node. Raises ArgumentTypeError."""
    switch, *rest = text.split(",")
    found = [re.fullmatch(r"([1-9][0-9]{0,9})=([0-9.]{7,15})", each) for each in rest]
    if not re.fullmatch(r"[0-9.]{7,15}", switch) or not found or None in found:
        raise argparse.ArgumentTypeError(f"{text!r}: give ADDRESS,PID=ADDRESS,..., with a PID for each node")
    return switch, tuple(NodeSpace(int(each[1]), each[2]) for each in found if each is not None)
