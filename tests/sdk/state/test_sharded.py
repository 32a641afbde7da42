"""Sharded state under failures: every shard comes back, and the run ends as the undisturbed one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "sharded.py"


def outcome(
    zygote: Zygote, world_size: int, kind: str, *kills: dict[str, Any]
) -> tuple[list[str], list[str], list[Message]]:
    """Digests and shards by rank, and what each generation resumed from."""
    with Node(zygote, SCRIPT, world_size, KIND=kind, KILL=json.dumps(kills)) as node:
        node.run(timeout_s=120)
        results = node.results()
        resumes = [formed["resume"] for formed in node.generations]
        return [line["digest"] for line in results], [line["shard"] for line in results], resumes


@pytest.mark.parametrize(("kind", "world_size"), [("fsdp", 2), ("fsdp", 4), ("tp", 2), ("evaluated", 2)])
def test_a_lost_shard_comes_from_the_dead_ranks_memory(zygote: Zygote, kind: str, world_size: int) -> None:
    whole, shards, _ = outcome(zygote, world_size, kind)
    assert len(set(shards)) == world_size
    found, same, resumes = outcome(zygote, world_size, kind, {"rank": 1, "step": 7, "phase": "forward"})
    assert found == whole and same == shards
    assert [resume["step"] for resume in resumes] == [0, 5]
    assert sorted(source["shard"] for source in resumes[1]["sources"]) == sorted(shards)
    assert {source["tier"] for source in resumes[1]["sources"]} == {"memory"}


def test_a_replica_of_the_shard_gives_it(zygote: Zygote) -> None:
    whole, shards, _ = outcome(zygote, 4, "hsdp")
    assert shards[0] == shards[2] != shards[1] == shards[3]
    found, _, resumes = outcome(zygote, 4, "hsdp", {"rank": 2, "step": 7, "phase": "forward"})
    assert found == whole
    assert resumes[1]["step"] == 7
    assert {source["tier"] for source in resumes[1]["sources"]} == {"donor"}


def test_killed_while_the_model_is_built_anew(zygote: Zygote) -> None:
    """The survivor's state outlives the model that held it, and the generation that never began."""
    whole, _, _ = outcome(zygote, 4, "hsdp")
    kills = [{"rank": 2, "step": 7, "phase": "forward"}, {"rank": 3, "step": 7, "phase": "build"}]
    found, _, resumes = outcome(zygote, 4, "hsdp", *kills)
    assert found == whole
    assert [resume["step"] for resume in resumes] == [0, 7, 7]
    assert {source["tier"] for source in resumes[2]["sources"]} == {"donor"}
