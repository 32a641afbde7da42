"""Who a coordinator is to others, and whether one that etcd still names is provably dead.

A leader killed with SIGKILL leaves its key in etcd until its lease expires. A coordinator of the same
machine need not wait: it can see that the process is gone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from holdfast import pids


@dataclass(frozen=True, slots=True)
class Identity:
    """What the leader key holds. `address`: host:port that agents and tools reach it at."""

    address: str
    boot: str  # id of the machine's boot and of the process's pid namespace
    pid: int
    born: int  # start of the process, clock ticks since boot: a reused pid differs
    page: str = ""  # URL of its status page; "": it has none

    @classmethod
    def own(cls, address: str, page: str = "") -> Identity:
        """Of this process."""
        return cls(address, pids.space(), os.getpid(), pids.born(os.getpid()), page)

    def to_bytes(self) -> bytes:
        """As the leader key's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, value: bytes) -> Identity | None:
        """From the leader key's value; None when it is not one of ours."""
        try:
            document = json.loads(value)
            return cls(
                str(document["address"]),
                str(document["boot"]),
                int(document["pid"]),
                int(document["born"]),
                str(document.get("page", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_dead(self) -> bool:
        """Whether it is certain that this process runs no more. Never true for another machine's."""
        return bool(self.boot) and self.boot == pids.space() and pids.born(self.pid) != self.born
