"""Remove from a hello or a beat what cannot be read, so that the rest counts.

A status may have a word of a newer version in it, or an invalid number. One such status must cost neither the
node its stream, nor the other members on the node their reports."""

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
    """Remove unreadable members and copies from a Hello or Beat. Return the names of those members.

    Their last readable status stays in force, because their agent still has them."""
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
