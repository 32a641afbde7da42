"""Say which local ranks of a node may hold ranks: those whose device is neither unhealthy nor excluded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import Node


_NUMBER = re.compile(r"[0-9]+$")


def number(device: str) -> int | None:
    """The local rank that a device belongs to (`gpu3`: 3); None for a device of the whole node (`memory`)."""
    found = _NUMBER.search(device)
    return int(found.group()) if found else None


def trouble(node: Node, place: int) -> str:
    """Why this local rank of a node takes no rank; "": it takes one."""
    for device, why in (*node.excluded.items(), *node.bad_devices.items()):
        if number(device) == place:
            return f"{device}: {why}"
    return ""


def places(node: Node) -> tuple[int, ...]:
    """The local ranks that a node can hold now."""
    marked = {number(device) for device in (*node.excluded, *node.bad_devices)}
    return tuple(place for place in range(node.slots) if place not in marked)


def ailing(node: Node) -> str:
    """Why a node as a whole takes no new ranks, such as its memory or disk; "": it takes them."""
    bad = [f"{device}: {why}" for device, why in node.bad_devices.items() if number(device) is None]
    return "; ".join(bad)
