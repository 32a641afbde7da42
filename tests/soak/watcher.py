"""Verify checkpoints again and again: list them all the while, read each that is new there at once, and all
of them every so often; load the newest and compare its digests."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING

from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState
from tests.soak.books import Steps
from tests.soak.train import combined

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.checkpoint.load import Found
    from holdfast.ipc.arena import SlotView

ROOM_BYTES = 1 << 20
PAUSE_S = 0.05
AGAIN_S = 0.5
"""How often a checkpoint that was whole is read again: what it loses later stays lost, and is found then."""


class Watcher(threading.Thread):
    """Reads one storage of a job until it is told to end. `problems`: the promises that did not hold."""

    def __init__(self, url: str, job: str, folder: Path) -> None:
        super().__init__(name="watcher", daemon=True)
        self.problems: list[str] = []
        self.listed: set[str] = set()
        self.present: list[str] = []  # ids, as they were listed last
        self.verified = self.loaded = self.vanished = 0
        self._store, self._job = Store.open(url), job
        self._steps = Steps(folder)
        self._path = folder / f"watched.{threading.get_ident()}.{id(self)}"
        self._newest, self._compared = -1, ""
        self._whole: set[str] = set()
        self._read_all_at = 0.0
        self._told = threading.Event()

    def run(self) -> None:
        try:
            while not self._told.wait(PAUSE_S) and not self.problems:
                self._look()
        except Exception as error:
            self.problems.append(f"the watcher itself failed: {error!r}")
            raise

    def end(self) -> None:
        """Look one last time, then end."""
        self._told.set()
        self.join()
        if not self.problems:
            self._read_all_at = 0.0
            self._look()
        self._path.unlink(missing_ok=True)
        self._store.close()

    def _look(self) -> None:
        listed = load.listing(self._store, self._job)
        if not listed:
            return
        self.present = [each.id for each in listed]
        self.listed.update(self.present)
        if listed[0].step < self._newest:
            self.problems.append(f"the newest was of step {self._newest}, now it is {listed[0].id}")
        self._newest = listed[0].step
        if time.monotonic() - self._read_all_at > AGAIN_S:
            self._whole.clear()
            self._read_all_at = time.monotonic()
        for each in listed:
            if each.id not in self._whole:
                self._checked(each)
        if listed[0].id != self._compared:
            self._compare(listed[0])

    def _checked(self, each: Found) -> None:
        try:
            load.verify(self._store, self._job, each.id)
            self.verified += 1
            self._whole.add(each.id)
        except (CheckpointError, FileNotFoundError) as error:
            self._excuse(each, f"checkpoint {each.id} is listed and does not verify: {error}")

    def _excuse(self, each: Found, problem: str) -> None:
        """Add a problem, unless retention has removed the checkpoint meanwhile: then it is not listed any
        more."""
        if each.id in [other.id for other in load.listing(self._store, self._job)]:
            self.problems.append(problem)
        else:
            self.vanished += 1

    def _compare(self, newest: Found) -> None:
        try:
            manifest = load.read_manifest(self._store, self._job, newest.id)
            found = [(shard, self._digest(newest.id, shard.shard)) for shard in manifest.shards]
        except (CheckpointError, FileNotFoundError) as error:
            self._excuse(newest, f"checkpoint {newest.id} is the newest and does not load: {error}")
            return
        self._steps.look()
        for shard, digest in found:
            for rank in shard.ranks:
                said = self._steps.digests.get((newest.step, rank))
                if said != digest:
                    self.problems.append(f"{newest.id} rank {rank}: loaded {digest}, the rank had {said}")
        self._compared = newest.id
        self.loaded += 1

    def _digest(self, checkpoint: str, shard: str) -> str:
        with Arena.create(self._path, ROOM_BYTES) as arena:
            load.load(self._store, arena, job=self._job, checkpoint=checkpoint, shard=shard)
            return _digest(next(slot for slot in arena.slots if slot.state == SlotState.READY))


def _digest(view: SlotView) -> str:
    """The digest, made as the script makes it of the live tensors."""
    tensors, _ = layout.decode(view.header, view.data_bytes)
    memory = view.memory
    return combined(
        hashlib.blake2b(memory[each.offset : each.offset + each.nbytes], digest_size=16).digest()
        for each in tensors
        if each.nbytes
    )
