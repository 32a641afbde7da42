"""Measure what a checkpoint costs, against the machine's limits and the peers.

`python -m benchmarks.checkpoint`: every round takes every contender in turn, on one state, in one process.
README.md explains each number."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from benchmarks import peer_stream
from benchmarks.checkpointing import limits, peers, state
from benchmarks.checkpointing.lazily import LazyTraining
from benchmarks.checkpointing.ours import Holdfast
from benchmarks.checkpointing.summary import AIMS, RATIOS, ratios
from benchmarks.load import LoadMeter
from benchmarks.report import table

if TYPE_CHECKING:
    from collections.abc import Callable

Values = dict[str, list[float | None]]


class Bench:
    """One size of state, all contenders, and their folders."""

    def __init__(self, size: float, disk: Path, memory: Path) -> None:
        self.disk, self.memory = disk, memory
        self.state = state.gpt(*state.SIZES[size])
        self.nbytes = state.nbytes(self.state)
        self.values: Values = {}
        self.warm = limits.WarmCopy(self.state, memory)
        self.ours = Holdfast(self.state, memory)
        self.cached = peers.AsyncSave(cached=True)
        self.process = peers.AsyncSave(process=True, cached=True)
        self.thread = peers.AsyncSave()
        self.contenders: dict[str, Callable[[], None]] = {
            "memcpy": lambda: self._note(memcpy_s=self.warm.seconds()),
            "disk": self._disk,
            "holdfast": self._ours,
            "holdfast-codec": self._codec,
            "holdfast-partial": self._partial,
            "safetensors": self._safetensors,
            "dcp.save": self._dcp,
            "dcp.async_save": lambda: self._async("async_thread", self.thread),
            "dcp.async_save cached": lambda: self._async("async_cached", self.cached),
            "dcp.async_save process": lambda: self._async("async_process", self.process),
            "peer": self._peer,
            "lazy": self._lazy,
        }

    def close(self) -> None:
        """End all processes and free the memory."""
        self.ours.close()
        self.cached.close()
        self.process.close()
        self.warm.close()

    def _note(self, **values: float) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)
            print(f"  {name} {value:.4f}", file=sys.stderr, flush=True)

    def _step(self) -> None:
        """About 10 ms of a trainer's work, on one thread."""
        for _ in range(24):
            torch.mm(_LEFT, _RIGHT)

    def _steps_s(self, during: Callable[[Callable[[], None]], Any]) -> tuple[float, Any]:
        """The median time of a step while something else goes on (s), and the result of that."""
        spent: list[float] = []

        def step() -> None:
            begun = time.perf_counter()
            self._step()
            spent.append(time.perf_counter() - begun)

        answer = during(step)
        return statistics.median(spent) if spent else float("nan"), answer

    def _disk(self) -> None:
        path = self.disk / "limit"
        self._note(disk_s=limits.disk_write_s(path, self.nbytes))
        limits.drop_caches()
        self._note(disk_read_s=limits.disk_read_s(path))
        path.unlink()

    def _ours(self) -> None:
        state.train_a_little(self.state)
        alone_s, _ = self._steps_s(_thirty)
        busy_s, (stall_s, total_s, answer) = self._steps_s(self.ours.save)
        self._note(step_alone_s=alone_s, step_during_s=busy_s)
        self._note(stall_s=stall_s, total_busy_s=total_s, dense_bytes=answer["bytes_written"])
        state.train_a_little(self.state)
        _, total_s, _ = self.ours.save()
        self._note(total_s=total_s)
        limits.drop_caches()
        self._note(restore_s=self.ours.restore_s(), restore_memory_s=self.ours.restore_memory_s())

    def _codec(self) -> None:
        state.train_a_little(self.state)
        _, total_s, answer = self.ours.save(codec="zstd")
        self._note(codec_total_s=total_s, codec_bytes=answer["bytes_written"])

    def _partial(self) -> None:
        _, _, _ = self.ours.save()
        base = f"{self.ours.step}-1"
        names = state.changed_names(self.state)
        for name in names:
            self.state[name].mul_(1.0001)
        _, total_s, answer = self.ours.save(base=base)
        changed = sum(self.state[name].nbytes for name in names)
        self._note(
            partial_total_s=total_s,
            partial_bytes=answer["bytes_written"],
            partial_changed_bytes=float(changed),
            partial_allowed_bytes=float(changed + len(names) * limits.BLOCK_BYTES),
        )

    def _safetensors(self) -> None:
        path = self.disk / "safetensors"
        self._note(safetensors_s=peers.safetensors_s(self.state, path))
        limits.drop_caches()
        self._note(safetensors_load_s=peers.safetensors_load_s(self.state, path))
        path.unlink()

    def _dcp(self) -> None:
        folder = self.disk / "dcp"
        self._note(dcp_save_s=peers.dcp_save_s(self.state, folder))
        limits.drop_caches()
        self._note(dcp_load_s=peers.dcp_load_s(self.state, folder))
        shutil.rmtree(folder)

    def _async(self, name: str, contender: peers.AsyncSave) -> None:
        folder = self.disk / name
        stall_s, total_s = contender.save(self.state, folder, self._step)
        self._note(**{f"{name}_stall_s": stall_s, f"{name}_total_s": total_s})
        shutil.rmtree(folder)

    def _peer(self) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.memory, prefix="peer"))
        found = peer_stream.run(folder, self.nbytes, 1)
        self._note(grpc_s=found["bare_s"], peer_s=found["fetch_s"])
        shutil.rmtree(folder)

    def _lazy(self) -> None:
        """Steps of about ten and three copies of the state, with a snapshot and without."""
        folder = Path(tempfile.mkdtemp(dir=self.memory, prefix="lazy"))
        training = LazyTraining(folder)
        long, short = training.steps(10.0, LAZY_PAIRS), training.steps(3.0, LAZY_PAIRS)
        self._note(lazy_memcpy_s=training.memcpy_s(), lazy_wait_s=statistics.median(long.waited_s))
        self._note(lazy_step_s=statistics.median(long.lazy_s), lazy_plain_s=statistics.median(long.plain_s))
        self._note(
            lazy_short_step_s=statistics.median(short.lazy_s),
            lazy_short_plain_s=statistics.median(short.plain_s),
        )
        training.close()
        shutil.rmtree(folder)

    def clean(self, name: str) -> None:
        """Delete what was saved, so that every contender finds the same disk, and make a folder for the
        next."""
        if self.ours.storage:
            shutil.rmtree(self.ours.storage, ignore_errors=True)
        self.ours.storage = tempfile.mkdtemp(dir=self.disk, prefix=name)
        os.sync()


def _thirty(step: Callable[[], None]) -> None:
    for _ in range(30):
        step()


LAZY_PAIRS = 15
_LEFT, _RIGHT = torch.randn(256, 256), torch.randn(256, 256)


def measure(bench: Bench, rounds: int, only: list[str]) -> None:
    """Run all contenders in turn, `rounds` times, after one round that only warms their memory."""
    for number in range(-1, rounds):
        for name in only:
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            bench.clean(name)
            bench.contenders[name]()
        if number < 0:
            bench.values.clear()


def main() -> None:
    """Measure and print: a table, or with --json one object on the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="interleaved rounds (default: 3)")
    parser.add_argument("--size", type=float, default=0.4, choices=sorted(state.SIZES), help="GB of state")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk to write to")
    parser.add_argument("--only", metavar="NAMES", help="some contenders only, comma separated")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = LoadMeter()
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as disk,
        tempfile.TemporaryDirectory(dir="/dev/shm") as shm,
    ):
        dist.init_process_group("gloo", init_method=f"file://{disk}/meeting", rank=0, world_size=1)
        bench = Bench(options.size, Path(disk), Path(shm))
        only = options.only.split(",") if options.only else list(bench.contenders)
        if options.rounds < 1 or not set(only) <= set(bench.contenders):
            parser.error(f"give 1 round or more, and names among {', '.join(bench.contenders)}")
        try:
            measure(bench, options.rounds, only)
            extra = {"state_bytes": bench.nbytes, "agent_memory_bytes": bench.ours.memory_bytes}
        finally:
            bench.close()
            dist.destroy_process_group()
    load.sample()
    found = {
        name: statistics.median(v for v in series if v is not None) for name, series in bench.values.items()
    }
    result: dict[str, Any] = ratios(found, bench.nbytes)
    result |= {"raw": found | extra, "rounds": options.rounds, "load": load.result()}
    if options.json:
        print(json.dumps(result))
    else:
        shown = result | {name: None for name in RATIOS if name not in result}
        print(table(shown | found, bench.values, AIMS))


if __name__ == "__main__":
    main()
