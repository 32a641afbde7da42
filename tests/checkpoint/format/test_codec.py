"""Codecs: what is decoded is what was encoded, what is not worth it is left, what is spoilt is noticed."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zstandard

from holdfast.checkpoint.errors import CheckpointCorrupt, NameRefused
from holdfast.checkpoint.format import choosing, codec, names
from holdfast.checkpoint.load import load, verify
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.skips import Skip
from tests.checkpoint.states import ITEM_BYTES, JOB, SMALL, Shapes, arena_for, content, loaded, save, write

if TYPE_CHECKING:
    from pathlib import Path

CODECS = [f"shuffle{width}+zstd" for width in (1, 2, 4, 8)]


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 4096, 100_003])
def test_there_and_back(name: str, length: int) -> None:
    for pattern in (b"\0", b"abcdefgh", struct.pack("<d", 1.5)):
        data = (pattern * length)[:length]
        stored = codec.encode(data, name)
        if stored is not None:
            assert len(stored) <= codec.stored_most(length, name)
            assert bytes(codec.decode(stored, name, length)) == data
            assert bytes(codec.decode(bytes(stored), name, length)) == data


def test_what_does_not_shrink_is_left_as_it_is() -> None:
    noise = random.Random(1).randbytes(100_000)
    assert [codec.encode(noise, name) for name in CODECS] == [None] * 4
    assert codec.encode(noise, "none") is noise


def gauss(dtype: str, count: int) -> bytes:
    numbers = (np.random.default_rng(2).standard_normal(count) * 0.02).astype(np.float32)
    return (
        numbers.tobytes()
        if dtype == "float32"
        else (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    )


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.86), ("bfloat16", 0.72)])
def test_numbers_shrink(dtype: str, most: float) -> None:
    data = gauss(dtype, 1 << 20)
    stored = codec.encode(data, codec.for_dtype(dtype))
    assert stored is not None
    assert len(stored) < most * len(data)


def test_every_type_has_a_codec() -> None:
    assert {names.item_bytes(codec.for_dtype(dtype)) for dtype in ITEM_BYTES} == {1, 2, 4, 8}


@pytest.mark.parametrize("name", ["", "zstd", "shuffle3+zstd", "shuffle4+zstd\n", "pickle", None])
def test_unknown_codecs_are_refused(name: str) -> None:
    with pytest.raises(NameRefused, match="is not a codec"):
        names.item_bytes(name)


def test_what_is_not_what_was_encoded_is_an_error() -> None:
    stored = bytes(codec.encode(bytes(10_000), "shuffle4+zstd") or b"")
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000))
    for spoilt in (stored[:-1], stored + b"x", b"", b"abc", bomb, unsized):
        with pytest.raises(codec.CodecError):
            codec.decode(spoilt, "shuffle4+zstd", 10_000)


def test_every_flipped_bit_of_a_compressed_chunk_is_found(store: Store, folder: Path, shm: Path) -> None:
    shapes: Shapes = [("w", "float32", (20_000,))]
    with arena_for(shm / "a", shapes) as arena:
        writer = arena.begin(10, 1, released_step=10)
        assert not isinstance(writer, Skip)
        save(store, write(writer, shapes, {"w": gauss("float32", 20_000)}), codec="zstd")
        (path,) = (folder / "storage/jobs/job/bases").rglob("*.s4z")
        whole, source = path.read_bytes(), random.Random(3)
        for number in range(300):
            spoilt = bytearray(whole)
            spoilt[source.randrange(len(whole))] ^= 1 << number % 8
            path.write_bytes(spoilt)
            with pytest.raises(CheckpointCorrupt, match=f"checkpoint 10-1: chunk {path.stem}: "):
                verify(store, JOB, "10-1")
        with pytest.raises(CheckpointCorrupt):
            load(store, arena, job=JOB, checkpoint="10-1")
        path.write_bytes(whole)
    assert loaded(store, shm / "b", "10-1") == {"w": gauss("float32", 20_000)}


@pytest.mark.parametrize("setting", ["zstd", "auto", "none"])
def test_a_writer_who_chose_otherwise_before_does_no_harm(store: Store, shm: Path, setting: str) -> None:
    """Compressed and plain chunks of one base lie side by side."""
    values = content(SMALL, 1) | {"w": gauss("float32", 40_000)}
    with arena_for(shm / "a", SMALL) as arena:
        for step, used in ((10, setting), (20, "zstd"), (30, "none")):
            writer = arena.begin(step, 1, released_step=step)
            assert not isinstance(writer, Skip)
            fresh = Store.open(store.url)
            save(fresh, write(writer, SMALL, values), base="" if step == 10 else "10-1", codec=used)
            assert loaded(store, shm / f"b{step}", f"{step}-1") == values


class TestChoosing:
    def test_a_slow_line_pays_and_a_fast_disk_does_not(self) -> None:
        assert choosing.pays(20e6, 400e6, 0.8, now=False)
        assert not choosing.pays(800e6, 400e6, 0.8, now=True)
        assert not choosing.pays(1e6, 400e6, 1.0, now=True)

    def test_near_the_edge_it_stays_as_it_is(self) -> None:
        edge = 0.2 * 400e6
        for speed in (edge * 0.85, edge, edge * 1.15):
            assert choosing.pays(speed, 400e6, 0.8, now=True)
            assert not choosing.pays(speed, 400e6, 0.8, now=False)

    def test_it_measures_before_it_decides_and_follows_the_line(self) -> None:
        meter = choosing.Meter()
        assert meter.choose(), "the codec is measured with the first chunk"
        meter.encoded(8_000_000, 6_400_000, 0.02)
        assert not meter.choose()
        for _ in range(8):
            meter.uploaded(8_000_000, 0.4)
        assert meter.choose()
        for _ in range(30):
            meter.uploaded(6_400_000, 0.005)
        assert not meter.choose()
        assert sum(meter.choose() for _ in range(640)) == 10, "now and then it looks how well it would do"
