"""What can be read of a hello or a beat in which something cannot: a word of a newer version, a number that
is none. One such status must not cost a node its stream, nor the others on it their word."""

from __future__ import annotations

from typing import Any

from controlplane.core.records import model
from controlplane.wire import bounds
from controlplane.wire.mapping import RECORDS, Mapping
from controlplane.wire.shape import WireError

_LISTS: dict[str, Mapping] = {
    "members": RECORDS[model.MemberStatus],
    "copies": RECORDS[model.PeerCopy],
}


def leave_out(message: Any) -> tuple[str, ...]:
    """Take the members and copies out of this Hello or Beat that cannot be read. The names of those members:
    of them what was heard before stands, for their agent has them still."""
    unread: list[str] = []
    for name, mapping in _LISTS.items():
        entries = getattr(message, name)
        kept = [each for each in entries if _reads(mapping, each)]
        if len(kept) < len(entries):
            if name == "members":
                unread += [each.member for each in entries if not _reads(mapping, each)]
            kept = [type(each).FromString(each.SerializeToString()) for each in kept]
            del entries[:]
            entries.extend(kept)
    return tuple(unread)


def _reads(mapping: Mapping, message: Any) -> bool:
    try:
        bounds.check(mapping.read(message))
    except WireError:
        return False
    return True
