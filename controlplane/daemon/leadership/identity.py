"""Identify a coordinator to others, and tell whether the one that etcd names is provably dead.

A leader killed with SIGKILL leaves its key in etcd until its lease expires. A coordinator on the same machine
need not wait for that: it can see that the process is gone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from holdfast import pids


@dataclass(frozen=True, slots=True)
class Identity:
    """The value of the leader key. `address`: host:port at which agents and tools reach the leader."""

    address: str
    boot: str  # id of the machine's boot and of the process's pid namespace
    pid: int
    born: int  # when the process started, clock ticks since boot: a reused pid differs
    page: str = ""  # URL of its status page; "": it has none

    @classmethod
    def own(cls, address: str, page: str = "") -> Identity:
        """Return the identity of this process."""
        return cls(address, pids.space(), os.getpid(), pids.born(os.getpid()), page)

    def to_bytes(self) -> bytes:
        """Return the identity as the leader key's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, value: bytes) -> Identity | None:
        """Return the identity in a leader key's value; None when the value is not ours."""
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
        """Return whether this process certainly runs no more. Always false for one on another machine."""
        return bool(self.boot) and self.boot == pids.space() and pids.born(self.pid) != self.born
