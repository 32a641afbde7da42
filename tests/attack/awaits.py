"""Rows of the attack that hold once other work is there. Each is tried and printed all the same.

A row that fails and stands here is told as awaited, and fails nothing; one that holds is told, so that its
entry goes. The list is to be empty."""

from __future__ import annotations

from fnmatch import fnmatchcase

AWAITS: dict[str, str] = {
    "*/empty-job": "rights: a certificate with an empty list of jobs is refused",
    "Peer.*/other-job": "peers: Get, Have, Put and Drop check the job",
}
"""A pattern of rows' names, and what they wait for."""


def awaited(name: str) -> str:
    """What a row waits for; "" when it must hold now."""
    return next((why for pattern, why in AWAITS.items() if fnmatchcase(name, pattern)), "")
