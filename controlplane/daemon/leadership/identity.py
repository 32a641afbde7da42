"""Identify a coordinator to others, and tell whether the one that etcd names is provably dead.

A leader killed with SIGKILL leaves its key in etcd until its lease expires. A coordinator on the same machine
need not wait for that: it can see that the process is gone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from controlplane.decision_settings import DecisionSettings
from controlplane.diagnosis_settings import DiagnosisSettings
from holdfast import pids

if TYPE_CHECKING:
    from controlplane.settings import CoordinatorSettings


@dataclass(frozen=True, slots=True)
class Identity:
    """The value of the leader key. `address`: host:port at which agents and tools reach the leader."""

    address: str
    boot: str  # id of the machine's boot and of the process's pid namespace
    pid: int
    born: int  # when the process started, clock ticks since boot: a reused pid differs
    page: str = ""  # URL of its status page; "": it has none
    settings: tuple[tuple[str, str], ...] = ()
    """The flags by which it decides, with their values; (): not known, as from an earlier version."""

    @classmethod
    def own(cls, address: str, page: str, settings: CoordinatorSettings) -> Identity:
        """Return the identity of this process."""
        names = [field.name for kind in (DecisionSettings, DiagnosisSettings) for field in fields(kind)]
        flags = {f"--{name.replace('_', '-')}": str(getattr(settings, name)) for name in names}
        own = pids.space(), os.getpid(), pids.born(os.getpid())
        return cls(address, *own, page, tuple(sorted(flags.items())))

    def to_bytes(self) -> bytes:
        """Return the identity as the leader key's value."""
        document = asdict(self) | {"settings": dict(self.settings)}
        if not self.settings:
            del document["settings"]
        return json.dumps(document).encode()

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
                tuple((str(flag), str(value)) for flag, value in document.get("settings", {}).items()),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def unlike(self, other: Identity) -> list[str]:
        """The settings in which this coordinator decides otherwise: `--retry-s 2.0 (there 1.0)`.

        Settings that only one of the two knows are left out: they are of different versions."""
        theirs = dict(other.settings)
        return [
            f"{flag} {value} (there {theirs[flag]})"
            for flag, value in self.settings
            if theirs.get(flag, value) != value
        ]

    def is_dead(self) -> bool:
        """Return whether this process certainly runs no more. Always false for one on another machine."""
        return bool(self.boot) and self.boot == pids.space() and pids.born(self.pid) != self.born
