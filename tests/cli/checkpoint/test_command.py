"""`holdfast checkpoint VERB` on real files: what people and scripts read, and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from safetensors import safe_open

from controlplane.cli.checkpoint.adopting import on_storage, survey
from controlplane.cli.main import main
from holdfast.checkpoint import load, suspect
from holdfast.checkpoint.format import typed
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from holdfast.ipc.arena import SlotWriter
from tests.checkpoint.states import JOB, SMALL, content, nbytes, save, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ipc.arena import Arena, SlotView


@pytest.fixture
def url(store: Store, arena: Arena) -> str:
    """Two checkpoints of a tracked object `net`: full at 10, incremental at 20 with another `b`."""
    save(store, tracked(arena, 10, content(SMALL, 0)))
    save(store, tracked(arena, 20, content(SMALL, 0) | {"b": b"\1" * 64}), base="10-1")
    return store.url


def tracked(arena: Arena, step: int, values: dict[str, bytes]) -> SlotView:
    """A snapshot as a session makes it: the header says which object's state the tensors are."""
    writer = arena.begin(step, 1, released_step=step)
    assert isinstance(writer, SlotWriter)
    placed, data_bytes = layout.place((*entry, nbytes(*entry[1:])) for entry in SMALL)
    for tensor in placed:
        writer.memory[tensor.offset : tensor.offset + tensor.nbytes] = values[tensor.name]
    tree = {"net": {"state": {tensor.name: tensor for tensor in placed}}}
    writer.layout(layout.encode(placed, {"objects": typed.encode(tree, placed.index)}), data_bytes)
    return writer.ready()


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["checkpoint", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 1) -> str:
    assert main(["checkpoint", *words]) == code
    return capsys.readouterr().err


def chunk_of(folder: Path, size: int) -> Path:
    found = [p for p in folder.rglob("*") if p.is_file() and "chunks" in p.parts and p.stat().st_size == size]
    assert len(found) == 1
    return found[0]


def test_list_and_show_tell_what_is_there(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, "list", url)["checkpoints"]
    assert [(r["checkpoint"], r["kind"], r["base"], r["bytes"]) for r in rows] == [
        ("20-1", "incremental", "10-1", 160_072),
        ("10-1", "full", "10-1", 160_072),
    ]
    shown = asked(capsys, "show", url, "--checkpoint", "10")
    assert shown["checkpoint"] == "10-1" and shown["chunks"] == 2
    assert [t["name"] for t in shown["shards"][0]["tensors"]] == ["w", "b", "step"]
    assert main(["checkpoint", "show", url, "--tensors"]) == 0
    assert "40000" in capsys.readouterr().out
    assert main(["checkpoint", "list", url]) == 0
    assert "156.3 KiB" in capsys.readouterr().out


def test_suspect_checkpoints_are_told_and_are_not_the_newest(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(Store.open(url)) as store:
        suspect.mark(store, "job", "20-1", "replicas differed after step 15")
    rows = asked(capsys, "list", url)["checkpoints"]
    assert [(each["checkpoint"], each["suspect"]) for each in rows] == [
        ("20-1", "replicas differed after step 15"),
        ("10-1", ""),
    ]
    assert main(["checkpoint", "list", url]) == 0
    assert "suspect: replicas differed after step 15" in capsys.readouterr().out
    assert asked(capsys, "show", url)["checkpoint"] == "10-1"
    assert main(["checkpoint", "show", url, "--checkpoint", "20-1"]) == 0
    assert "suspect     replicas differed after step 15" in capsys.readouterr().out
    with contextlib.closing(Store.open(url)) as store:
        whole, refused_ = survey(store, "job")
        assert ([each.id for each in whole], refused_) == (
            ["10-1"],
            ["20-1: replicas differed after step 15"],
        )
        suspect.mark(store, "job", "10-1", "it too")
    assert on_storage(url, "", "job")[0] == []
    assert "every checkpoint is suspect; name one to use it all the same" in refused(capsys, "show", url)


def test_diff_names_the_tensors_that_changed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, "diff", url, "10", "20")["tensors"]
    assert {r["name"] for r in rows} <= {"b", "step"} and "b" in {r["name"] for r in rows}
    assert asked(capsys, "diff", url, "10", "10")["tensors"] == []
    assert main(["checkpoint", "diff", url, "10", "10"]) == 0
    assert "byte for byte" in capsys.readouterr().out


def test_verify_reads_everything_and_the_newest_decides(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = asked(capsys, "verify", url)["checkpoints"]
    assert [(r["step"], r["valid"], r["errors"]) for r in rows] == [(20, True, []), (10, True, [])]
    shared = chunk_of(folder, 160_000)
    content = bytearray(shared.read_bytes())
    content[1000] ^= 1
    shared.chmod(0o644)
    shared.write_bytes(content)
    rows = asked(capsys, "verify", url, code=1)["checkpoints"]
    assert [r["valid"] for r in rows] == [False, False]
    assert shared.name.partition(".")[0] in rows[0]["errors"][0]


def test_an_older_one_that_is_spoilt_does_not_fail_the_newest(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / f"storage/jobs/{JOB}/manifests/10-1.json").write_bytes(b"{}")
    rows = asked(capsys, "verify", url)["checkpoints"]
    assert [(r["step"], r["valid"]) for r in rows] == [(20, True), (10, False)]
    listed = asked(capsys, "list", url)["checkpoints"]
    assert "error" in listed[1] and "error" not in listed[0]


def test_gc_shows_first_and_deletes_when_told(
    store: Store, arena: Arena, url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, snapshot(arena, 30, seed=3))
    save(store, snapshot(arena, 40, seed=4))
    old = time.time() - 10_000
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))
    files = {p for p in folder.rglob("*") if p.is_file()}
    told = asked(capsys, "gc", url, "--keep-last", "1")
    assert told["removed"] == ["10-1", "20-1", "30-1"] and told["kept"] == ["40-1"] and not told["applied"]
    assert {p for p in folder.rglob("*") if p.is_file()} == files
    done = asked(capsys, "gc", url, "--keep-last", "1", "--apply")
    assert done["applied"] and done["bytes"] >= told["bytes"] > 2 * 160_000
    assert [found.id for found in load.listing(store, JOB)] == ["40-1"]
    assert asked(capsys, "verify", url)["checkpoints"][0]["valid"]


def test_export_writes_what_others_read(
    url: str, folder: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    told = asked(capsys, "export", url, "--checkpoint", "10", "--to", f"{folder}/out.safetensors")
    assert told["bytes"] == (folder / "out.safetensors").stat().st_size
    with safe_open(folder / "out.safetensors", "np") as file:
        values = {name: file.get_tensor(name).tobytes() for name in file.keys()}
    assert values == {f"net.{name}": value for name, value in content(SMALL, 0).items()}
    assert "is not overwritten" in refused(capsys, "export", url, "--to", f"{folder}/out.safetensors")
    assert asked(capsys, "export", url, "--to", f"{folder}/dcp", "--format", "dcp")["bytes"] > 160_000
    assert (folder / "dcp/.metadata").exists()


def test_what_cannot_be_is_named(
    url: str, folder: Path, store: Store, arena: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no folder jobs/" in refused(capsys, "list", f"{folder}/nothing")
    assert "unknown scheme" in refused(capsys, "list", "s4://bucket/x")
    assert "has no job jbo; did you mean job?" in refused(capsys, "list", url, "--job", "jbo")
    assert "has no checkpoint 15; it has 20-1, 10-1" in refused(capsys, "show", url, "--checkpoint", "15")
    assert "<step>-<generation> or a step" in refused(capsys, "show", url, "--checkpoint", "x", code=2)
    assert "did you mean verify" in refused(capsys, "verfy", url, code=2)
    assert "--keep-last: -1 is too small" in refused(capsys, "gc", url, "--keep-last", "-1", code=2)
    assert "give --keep-last too" in refused(capsys, "gc", url, "--keep-every", "5", code=2)
    save(store, snapshot(arena, 30), job="other")
    assert "has 2 jobs, name one with --job: job, other" in refused(capsys, "show", url, code=2)
    assert len(asked(capsys, "list", url)["checkpoints"]) == 3


def test_adopt_finds_no_coordinator_or_nothing_whole(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = ("--coordinator", "127.0.0.1:1")
    assert "no coordinator answers" in refused(capsys, "adopt", url, *away, code=3)
    chunk_of(folder, 160_000).unlink()
    assert "no complete checkpoint to adopt: 20-1" in refused(capsys, "adopt", url, *away)
