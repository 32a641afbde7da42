"""The numbers of ranks, the names and local ids of groups, and the order of files change nothing."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from benchmarks.diagnosis.dumps import DumpCase, dumps
from tests.analysis.flight_records.made import judge, named, unsure, world

Documents = list[tuple[int, dict[str, Any]]]
KINDS = ("not_arrived", "other_order", "stuck_transfer", "stopped_device", "dead_process", "left_out")


def renumbered(case: DumpCase, random: Random) -> tuple[Documents, dict[int, int]]:
    """The same job with other numbers of ranks, other names of groups, and local ids of each rank's own."""
    ranks = sorted({rank for dump in case.dumps.values() for rank in _world(dump)})
    new = dict(zip(ranks, random.sample(range(1000), len(ranks)), strict=True))
    names: dict[str, str] = {}
    found = []
    for rank, dump in copy.deepcopy(case.dumps).items():
        for name in dump["pg_config"]:
            names.setdefault(name, str(random.randrange(10**6)))
        ids = random.sample(range(1000), len(dump["pg_status"]) + 20)
        dump["pg_config"] = {
            names[name]: {**each, "name": names[name], "ranks": str([new[rank] for rank in _ranks(each)])}
            for name, each in dump["pg_config"].items()
        }
        dump["pg_status"] = {str(ids[int(key)]): each for key, each in dump["pg_status"].items()}
        for each in dump["entries"]:
            each["process_group"] = (names[each["process_group"][0]], each["process_group"][1])
            each["pg_id"] = ids[each["pg_id"]]
        found.append((new[rank], dump))
    random.shuffle(found)
    return found, new


def _world(dump: dict[str, Any]) -> list[int]:
    return [rank for each in dump["pg_config"].values() for rank in _ranks(each)]


def _ranks(config: dict[str, Any]) -> list[int]:
    return [int(each) for each in config["ranks"].strip("[]").split(",")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_renumbered_dumps_get_the_same_answer(kind: str, seed: int) -> None:
    case = dumps(kind, seed)
    plain = judge(case.dumps.items())
    documents, new = renumbered(case, Random(seed))
    other = judge(documents)
    assert named(other) == {new[rank]: kind for rank, kind in named(plain).items()}
    assert sorted(unsure(other)) == sorted(new[rank] for rank in unsure(plain))
    assert set(named(plain)) == case.culprits


def test_a_group_has_another_name_and_id_on_each_rank() -> None:
    made = world(4, pair=[2, 3])
    for dump in made:
        dump.groups = {f"{name}-{dump.rank}": each for name, each in dump.groups.items()}
        dump.call("all_reduce", f"0-{dump.rank}")
        if dump.rank != 1:
            dump.call("all_reduce", f"0-{dump.rank}", done=False)
    assert named(judge((dump.rank, dump.document()) for dump in made)) == {1: "not_arrived"}


def test_groups_of_the_same_ranks_are_kept_apart() -> None:
    """Ranks wait in one of two groups of the same members and description; the other one is at the same
    number."""
    made = world(4, second=[0, 1, 2, 3])
    for dump in made:
        dump.groups["second"] = dump.groups["0"]
        dump.call("all_reduce", "0").call("broadcast", "second")
        if dump.rank:
            dump.call("broadcast", "second", done=False)
    (culprit,) = judge((dump.rank, dump.document()) for dump in made).culprits
    assert (culprit.rank, culprit.operation, culprit.sequence) == (0, "broadcast", 2)
