"""Recognise the same process group in the dumps of different ranks.

A group is who belongs to it and what it is for (its description), not its name: names and local ids may
differ from rank to rank. Several groups of the same ranks and description are told apart by name where ranks
share names, else by the order in which each rank made them. gloo records no members: such a group is known
by its name, and its members are the ranks that have records of it (of the default group: all ranks)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.analysis.flight_records.records import FlightDump, GroupRecord

DEFAULT = "default_pg"
"""torch's description of the group of all ranks."""
UNDESCRIBED = ("", "undefined")


@dataclass(frozen=True, slots=True)
class JobGroup:
    """One process group of the job. `sure`: its members are recorded, not inferred."""

    label: str
    members: tuple[int, ...]
    sure: bool


@dataclass(frozen=True, slots=True)
class JobGroups:
    """All groups, and which one a rank means by a name."""

    all: tuple[JobGroup, ...]
    index: dict[tuple[int, str], int]
    order: dict[tuple[int, str], tuple[int, ...]]  # members in the order of the group's own ranks

    def world(self) -> list[int]:
        """Every rank that belongs to any group, sorted."""
        return sorted({rank for group in self.all for rank in group.members})


def recognise(dumps: Sequence[FlightDump], ranks: Sequence[int]) -> JobGroups:
    """The groups of these dumps. `ranks`: all ranks of which there is a file."""
    found: list[JobGroup] = []
    index: dict[tuple[int, str], int] = {}
    order: dict[tuple[int, str], tuple[int, ...]] = {}
    local_ids = {(dump.rank, each.group): each.pg_id for dump in dumps for each in dump.entries}
    alike: dict[tuple[tuple[int, ...], str], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    bare: dict[tuple[str, str], list[int]] = defaultdict(list)
    for dump in dumps:
        for group in _groups(dump):
            if group.ranks:
                alike[tuple(sorted(group.ranks)), group.description][dump.rank].append(group.name)
                order[dump.rank, group.name] = group.ranks
            else:
                bare[group.name, group.description].append(dump.rank)
    for (members, description), names in sorted(alike.items()):
        for place, label in sorted(_told_apart(names, local_ids, description)):
            for rank, name in place:
                index[rank, name] = len(found)
            found.append(JobGroup(label, members, sure=True))
    for (name, description), known in sorted(bare.items()):
        whole = description == DEFAULT and ranks
        members = tuple(range(max(ranks) + 1)) if whole else tuple(sorted(known))
        for rank in known:
            index[rank, name] = len(found)
            if whole:
                order[rank, name] = members
        label = name if description in UNDESCRIBED else description
        found.append(JobGroup(label, members, sure=False))
    return JobGroups(tuple(found), index, order)


def _groups(dump: FlightDump) -> Iterable[GroupRecord]:
    """The groups that a dump describes, or only uses."""
    return [group for group in dump.groups if group.name or group.ranks]


def _told_apart(
    names: dict[int, list[str]], local_ids: dict[tuple[int, str], int], description: str
) -> list[tuple[tuple[tuple[int, str], ...], str]]:
    """Groups of the same ranks and description: for each the (rank, name) that mean it, and its label."""
    used: dict[str, list[int]] = defaultdict(list)
    for rank, mine in sorted(names.items()):
        for name in mine:
            used[name].append(rank)
    most = max(map(len, names.values()))
    shared = most > 1 and any(len(ranks) > 1 for ranks in used.values())
    if shared:
        return [
            (tuple((rank, name) for rank in ranks), _label(description, name)) for name, ranks in used.items()
        ]
    places: list[list[tuple[int, str]]] = [[] for _ in range(most)]
    for rank, mine in sorted(names.items()):
        for place, name in enumerate(sorted(mine, key=lambda each: _age(local_ids.get((rank, each)), each))):
            places[place].append((rank, name))
    return [(tuple(place), _label(description, place[0][1])) for place in places]


def _age(local_id: int | None, name: str) -> tuple[int, int, str]:
    """Sort by the order in which a process made its groups: its ids count up, and so do torch's names."""
    if local_id is not None:
        return (0, local_id, name)
    return (1, int(name[:18]), name) if name.isdecimal() else (2, 0, name)


def _label(description: str, name: str) -> str:
    return name if description in UNDESCRIBED else description
