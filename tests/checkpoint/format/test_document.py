"""docs/checkpoints.md is exact: the reader in it reads what we write, and notices what is spoilt."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import blake3
import pytest

from holdfast.checkpoint.format.cutting import CHUNK_BYTES
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.skips import Skip
from tests.checkpoint.states import JOB, Shapes, arena_for, content, save, write

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "checkpoints.md"
SHAPES: Shapes = [
    ("w", "float32", (3 << 20,)),
    ("h", "bfloat16", (200_000,)),
    ("rows", "float32", (3000, 256)),
    ("empty", "float32", (0,)),
    ("step", "int64", ()),
]


@pytest.fixture
def reader(folder: Path) -> Path:
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    path = folder / "reader.py"
    path.write_text(source)
    return path


def read(reader: Path, storage: Path, checkpoint: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(reader), str(storage), JOB, checkpoint]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=storage)


@pytest.mark.parametrize("bundle_bytes", [0, 9 << 20])
def test_the_reader_of_the_document_reads_what_we_write(
    reader: Path, folder: Path, shm: Path, bundle_bytes: int
) -> None:
    values = content(SHAPES, 1) | {"w": bytes(CHUNK_BYTES + 7) + content(SHAPES, 1)["w"][CHUNK_BYTES + 7 :]}
    store = Store.open(f"file://{folder}/storage", bundle_bytes=bundle_bytes)
    with arena_for(shm / "a", SHAPES) as arena:
        for step, codec in ((10, "none"), (20, "zstd"), (30, "auto")):
            rows = bytearray(values["rows"])
            rows[step * 1024 : step * 1024 + 1024] = bytes(1024)
            values = values | {"rows": bytes(rows)}
            writer = arena.begin(step, 1, released_step=step)
            assert not isinstance(writer, Skip)
            save(store, write(writer, SHAPES, values), base="" if step == 10 else "10-1", codec=codec)
            done = read(reader, folder / "storage", f"{step}-1")
            assert done.returncode == 0, done.stderr
            told = [line.split() for line in done.stdout.splitlines()]
            assert told == [
                ["all", name, str(len(data)), blake3.blake3(data).hexdigest()]
                for name, data in values.items()
            ]
    stored = [
        *(folder / "storage").rglob("*.s4z"),
        *sorted((folder / "storage").rglob("bundles/*"), key=lambda path: path.stat().st_size)[-1:],
    ]
    assert len(stored) >= 1
    for path in (folder / "storage/jobs/job/manifests/30-1.json", *stored):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        assert read(reader, folder / "storage", "30-1").returncode == 1
        path.write_bytes(whole)
