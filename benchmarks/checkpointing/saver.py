"""Do the agent's part, in a process of its own as in production: orders on standard input, answers on output.

Saves run at the agent's priorities; a load does not, because training waits for it."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.host import heap
from agent.orders.snapshot_queue import NICE
from holdfast.checkpoint import load, priority, save
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.arena import Arena

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import CheckpointPart

JOB = "bench"


class Memory:
    """Watches how much memory of its own (not shared) this process has held at most, in bytes."""

    def __init__(self) -> None:
        self.most = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, _anonymous_bytes())
            time.sleep(0.01)


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _nice_thread(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, name, initializer=priority.give_way, initargs=(NICE[name],))


class Saver:
    """Saves and loads as the agent does, through the same functions."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._stores: dict[str, Store] = {}
        self._threads = {name: _nice_thread(name) for name in ("upload", "commit")}
        self.table: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "create": self._create,
            "save": self._save,
            "load": self._load,
            "memory": lambda _: {"bytes": self._memory.most},
        }

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = Store.open(url)
        return self._stores[url]

    def _create(self, order: dict[str, Any]) -> dict[str, Any]:
        Arena.create(order["arena"], order["slot_bytes"]).close()
        return {}

    def _save(self, order: dict[str, Any]) -> dict[str, Any]:
        store, step = self._store(order["storage"]), order["step"]
        what = {
            "job": JOB,
            "checkpoint": f"{step}-1",
            "step": step,
            "generation": 1,
            "kind": "incremental" if order["base"] else "full",
            "base": order["base"] or f"{step}-1",
            "versions": ((0, step),),
        }
        with Arena.open(order["arena"], touched=False) as arena:
            slot = arena.find(step)
            assert slot is not None
            with arena.pinned(slot):
                persist = partial(save.persist_part, slot, store=store, codec=order["codec"], **what)
                part = self._threads["upload"].submit(persist).result()
        return self._threads["commit"].submit(_commit, store, part, what).result()

    def _load(self, order: dict[str, Any]) -> dict[str, Any]:
        store = Store.open(order["storage"])
        with Arena.open(order["arena"], touched=False) as arena:
            load.load(store, arena, job=JOB, checkpoint=f"{order['step']}-1")
        return {}


def _commit(store: Store, part: CheckpointPart, what: dict[str, Any]) -> dict[str, Any]:
    done = save.finalize(store, parts=(part,), **what)
    save.publish(store, JOB, what["checkpoint"], done.digest)
    return {"bytes_written": done.bytes_written, "bytes_total": done.bytes_total}


def main() -> None:
    """Carry out one order per line until the input ends."""
    heap.share_heaps()
    saver = Saver()
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(saver.table[order["op"]](order)), flush=True)


if __name__ == "__main__":
    main()
