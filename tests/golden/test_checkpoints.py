"""Checkpoints of earlier commits are verified and loaded; the same states are saved to the same bytes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.checkpoint.format import names, typed
from holdfast.checkpoint.load import load, read_manifest, verify
from holdfast.checkpoint.save import finalize, publish
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from tests.checkpoint.states import arena_for, values_of
from tests.golden import samples, stored
from tests.golden.commit import Sample, module

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ipc.arena import SlotView

STATE = {"epoch": 3, "rate": 0.125, "raw": b"\x00\xff", "pair": (1, "two")}


@pytest.fixture(params=samples.DIGESTS)
def commit(request: pytest.FixtureRequest) -> str:
    """Whose samples."""
    return str(request.param)


def storage(commit: str, folder: Path) -> Store:
    """A copy of what that commit has saved."""
    shutil.copytree(samples.folder(commit) / "storage", folder / "storage")
    return Store.open(f"file://{folder}/storage")


def test_a_published_checkpoint_is_loaded(commit: str, folder: Path) -> None:
    store, seen = storage(commit, folder), set()
    for sample in samples.read("checkpoints", commit):
        if sample["until"] == "published":
            seen.add((sample["codec"], sample["kind"]))
            _is_loaded(store, sample, folder / f"{sample['job']}-{sample['id']}")
    assert seen == {(codec, kind) for codec in ("none", "zstd") for kind in ("full", "incremental")}


def _is_loaded(store: Store, sample: Sample, place: Path) -> None:
    where = sample["job"], sample["id"]
    assert verify(store, *where, sample["digest"]).base == sample["base"]
    manifest = read_manifest(store, *where, sample["digest"])
    assert (manifest.step, manifest.generation, manifest.kind) == (sample["step"], 1, sample["kind"])
    assert [list(pair) for pair in manifest.versions] == sample["versions"]
    with arena_for(place, _shapes(sample)) as arena:
        assert (
            load(store, arena, job=where[0], checkpoint=where[1], digest=sample["digest"]) == sample["step"]
        )
        slot = arena.find(sample["step"])
        assert slot is not None
        _holds(slot, sample)


def _shapes(sample: Sample) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(name, dtype, tuple(shape)) for name, dtype, shape in sample["shapes"]]


def _holds(slot: SlotView, sample: Sample) -> None:
    stated = {name: samples.raw(value) for name, value in sample["values"].items()}
    large = {stored.LARGE[0]: stored.LARGE_CONTENT} if sample["codec"] == "zstd" else {}
    assert values_of(slot) == stated | large
    tensors, state = layout.decode(slot.header, slot.data_bytes)
    assert [(each.name, each.dtype, each.shape) for each in tensors] == _shapes(sample)
    assert typed.decode(state) == STATE


def test_parts_that_nobody_has_sealed_become_a_checkpoint(commit: str, folder: Path) -> None:
    store = storage(commit, folder)
    sample = _until("parts", commit)
    words: dict[str, Any] = {name: sample[name] for name in ("job", "step", "kind", "base")}
    words |= {"checkpoint": sample["id"], "generation": 1, "versions": tuple(map(tuple, sample["versions"]))}
    parts = [module("model").CheckpointPart(**part) for part in sample["parts"]]
    digest = finalize(store, parts=parts, **words).digest
    publish(store, sample["job"], sample["id"], digest)
    _is_loaded(store, sample | {"digest": digest}, folder / "sealed")


def test_what_is_sealed_is_published(commit: str, folder: Path) -> None:
    store, sample = storage(commit, folder), _until("pending", commit)
    publish(store, sample["job"], sample["id"], sample["digest"])
    _is_loaded(store, sample, folder / "published")


def _until(stage: str, commit: str) -> Sample:
    (sample,) = [each for each in samples.read("checkpoints", commit) if each["until"] == stage]
    return sample


def test_the_same_states_are_saved_to_the_same_bytes(folder: Path) -> None:
    """The compressed job's chunks depend on the version of zstd: they have the same names."""
    stated, again = samples.folder(samples.NEWEST) / "storage", folder / "storage"
    made = list(stored.checkpoints(again))
    assert _names(again) == _names(stated)
    plain = [name for name in _names(stated) if name.startswith(("jobs/job/", "jobs/bundled/"))]
    in_bundles = 2 + 2  # bundles and manifests
    assert len(plain) == 4 + 2 + 4 + 1 + in_bundles  # chunks, manifests, parts, and the one that is pending
    for name in plain:
        assert (again / name).read_bytes() == (stated / name).read_bytes(), name
    of_plain = [each for each in samples.read("checkpoints", samples.NEWEST) if each["job"] == "job"]
    assert [each["digest"] for each in made if each["job"] == "job"] == [each["digest"] for each in of_plain]


def _names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_their_names_are_names_of_ours() -> None:
    for name in _names(samples.folder(samples.NEWEST) / "storage"):
        assert names._FILES.fullmatch(name), name
