"""An arena that an earlier commit made is opened, and today's has the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.format import typed
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from holdfast.ipc.shm import HEADER_ALIGN_BYTES, PAGE_BYTES, align
from tests.golden import samples, stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden.commit import Sample

STATE = {"epoch": 3, "rate": 0.125, "raw": b"\x00\xff", "pair": (1, "two")}


@pytest.mark.parametrize("sample", samples.read("arena"), ids=list(samples.DIGESTS))
def test_an_arena_is_opened(sample: Sample, folder: Path) -> None:
    contents, stated = stored.contents(10, stored.SHAPES), sample["slot"]
    data = bytearray(stated["data_bytes"])
    for name, at in sample["offsets"].items():
        data[at : at + len(contents[name])] = contents[name]
    file = bytearray(sample["file_bytes"])
    words, header = samples.raw(sample["words"]), samples.raw(sample["header"])
    start = PAGE_BYTES + stated["index"] * sample["slot_bytes"]
    file[: len(words)] = words
    file[start : start + len(data)] = data
    behind = start + align(len(data), HEADER_ALIGN_BYTES)
    file[behind : behind + len(header)] = header
    (folder / "arena").write_bytes(file)
    with Arena.open(folder / "arena") as arena:
        assert arena.slot_bytes == sample["slot_bytes"]
        slot = arena.newest()
        assert slot is not None
        assert {name: getattr(slot, name) for name in stated} == stated
        assert slot.shard == sample["shard"]
        tensors, state = layout.decode(slot.header, slot.data_bytes)
        assert {each.name: each.offset for each in tensors} == sample["offsets"]
        assert [(each.name, each.dtype, each.shape) for each in tensors] == stored.SHAPES
        assert {
            each.name: bytes(slot.memory[each.offset : each.offset + each.nbytes]) for each in tensors
        } == contents
        assert typed.decode(state) == STATE
        del slot


def test_an_arena_is_written_as_it_was(folder: Path) -> None:
    assert [stored.arena(folder)] == samples.read("arena", samples.NEWEST)
