"""dcp.save on some ranks, dcp.load on others: bit for bit the same, and nothing half is ever listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint import load as loading
from holdfast.checkpoint.storage.store import Store
from tests.sdk.dcp_ranks import Ranks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote


@pytest.fixture
def ranks(dcp_zygote: Zygote, tmp_path: Path) -> Ranks:
    return Ranks(dcp_zygote, tmp_path)


def listed(ranks: Ranks) -> list[str]:
    return [found.id for found in loading.listing(Store.open(ranks.url), "job")]


@pytest.mark.parametrize(
    ("kind", "saved_on", "loaded"),
    [
        ("fsdp", 4, [("fsdp", 2), ("ddp", 1)]),
        ("fsdp", 1, [("fsdp", 3)]),
        ("tensor", 2, [("tensor", 3), ("fsdp", 2)]),
        ("both", 4, [("ddp", 2)]),
        ("ddp", 3, [("fsdp", 2), ("both", 4)]),
    ],
)
def test_saved_on_some_ranks_loaded_on_others(
    ranks: Ranks, kind: str, saved_on: int, loaded: list[tuple[str, int]]
) -> None:
    saved = ranks.run("save", saved_on, kind=kind)
    assert all(told == saved[0] for told in saved)
    for other, count in loaded:
        for told in ranks.run("read", count, kind=other):
            assert told == saved[0]


def test_a_save_in_a_thread_holds_what_was_there_when_it_began(ranks: Ranks) -> None:
    saved = ranks.run("save", 2, kind="fsdp", mode="thread")
    assert ranks.run("read", 1, kind="ddp") == [saved[0]]


@pytest.mark.slow
def test_a_save_in_another_process_maps_what_was_staged(ranks: Ranks) -> None:
    saved = ranks.run("save", 2, kind="fsdp", mode="process")
    assert ranks.run("read", 1, kind="ddp") == [saved[0]]


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_rank_that_fails_fails_the_save_on_every_rank(ranks: Ranks, mode: str) -> None:
    for told in ranks.run("fail", 3, how="raise", mode=mode):
        assert "this tensor is not to be had" in told
    assert listed(ranks) == []


def test_a_rank_killed_in_the_middle_leaves_nothing_listed_and_the_id_free(ranks: Ranks) -> None:
    told = ranks.run("fail", 3, how="kill", codes={1: -9})
    assert told[0] != "saved"
    assert told[2] != "saved"
    assert listed(ranks) == []
    saved = ranks.run("save", 2, kind="fsdp")
    assert listed(ranks) == ["7-0"]
    assert ranks.run("read", 1, kind="fsdp") == [saved[0]]
