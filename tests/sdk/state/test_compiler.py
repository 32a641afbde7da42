"""What inductor keeps on disk is whole even where its C++ compiler was killed.

Inductor itself, and the C++ compiler of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch._inductor import config

from holdfast.state import compiler

SCRIPT = """
import hashlib, torch
from holdfast.state import compiled
torch.set_num_threads(1)
torch.manual_seed(1)
module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU())
with compiled.by_call_alone():
    output = torch.compile(module, dynamic=False)(torch.randn(4, 64))
print(hashlib.blake2b(output.detach().numpy().tobytes()).hexdigest())
"""
ROOT = Path(__file__).resolve().parents[3]


def begin(folder: Path) -> subprocess.Popen[str]:
    """A process, in a session of its own, that compiles."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    env["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"  # they take longest, and are not in that folder
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    return output


def broken(folder: Path) -> list[Path]:
    """The libraries in a folder that end before their table of sections does."""
    found = []
    for path in folder.rglob("*.so"):
        data = path.read_bytes()
        table, size, count = (
            int.from_bytes(data[at : at + n], "little") for at, n in ((40, 8), (58, 2), (60, 2))
        )
        if len(data) < 64 or len(data) < table + size * count:
            found.append(path)
    return found


def test_what_a_killed_compiler_leaves_is_not_taken_for_whole(tmp_path: Path) -> None:
    wanted = end(begin(tmp_path / "undisturbed"))
    folder = tmp_path / "struck"
    process = begin(folder)
    while not list(folder.rglob("*.part")):
        assert process.poll() is None
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not broken(folder)
    assert end(begin(folder)) == wanted


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The script around a compiler that writes the first half, then waits to be told the second."""
    real = tmp_path / "real" / "g++"
    real.parent.mkdir()
    real.write_text(
        '#!/bin/sh\nshift $(($# - 1))\nprintf half > "$1"\nread rest || exit 3\nprintf "$rest" >> "$1"\n'
    )
    real.chmod(0o755)
    return Path(compiler._wrapper(str(real), str(tmp_path)))


def compile_to(script: Path, place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([script, "a file.cpp", "-o", place], stdin=subprocess.PIPE)


def test_the_place_has_the_whole_file_or_none(written: Path, tmp_path: Path) -> None:
    place = tmp_path / "with a blank.so"
    process = compile_to(written, place)
    while not [path for path in tmp_path.glob("*.part") if path.read_text() == "half"]:
        time.sleep(0.001)
    assert not place.exists()
    process.communicate(b"whole\n")
    assert process.returncode == 0 and place.read_text() == "halfwhole"
    assert not list(tmp_path.glob("*.part"))


def test_a_compiler_that_fails_leaves_nothing(written: Path, tmp_path: Path) -> None:
    process = compile_to(written, tmp_path / "out.so")
    process.communicate(b"")
    assert process.returncode == 3
    assert not list(tmp_path.glob("out.so*"))


def test_a_compiler_is_wrapped_once_and_only_if_torch_still_knows_it(tmp_path: Path) -> None:
    wrapped = compiler._wrapper("g++", str(tmp_path))
    assert wrapped != "g++" and compiler._wrapper(wrapped, str(tmp_path)) == wrapped
    assert compiler._wrapper("g++", str(tmp_path / "clang")) == "g++"
    assert compiler._wrapper("no-such-g++", str(tmp_path)) == "no-such-g++"


def test_nothing_changes_before_something_compiles() -> None:
    before = config.cpp.cxx
    if not compiler.in_use():
        compiler.leave_whole_files()
    assert config.cpp.cxx == before
