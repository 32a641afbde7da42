"""A process that saves, commits, publishes and collects one checkpoint after the other until it is killed.

`python -m tests.checkpoint.writer URL ARENA FIRST_STEP FILES`, where FILES is "chunks" or "bundles". It
prints "committed <id> <digest>" before it publishes: from then on the checkpoint counts as committed, as if
its record were in etcd."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from holdfast.checkpoint import collect
from holdfast.checkpoint.format import names
from holdfast.checkpoint.load import listing
from holdfast.checkpoint.save import finalize, publish
from holdfast.checkpoint.storage.lease import LeaseHeldError
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.skips import Skip
from tests.checkpoint.states import JOB, Order, Shapes, arena_for, content, save_part, write

SHAPES: Shapes = [("w", "float32", (1 << 19,)), ("v", "uint8", (3000, 1024)), ("b", "float32", (16,))]
BUNDLE_BYTES = 300_000  # each share of the state makes several
FULL_EVERY, KEEP, SHARES = 4, 3, 2


def values(step: int) -> dict[str, bytes]:
    """The state after `step` steps. All of it changes with each new base, and only some rows of `v` in
    between."""
    opened = step - step % FULL_EVERY
    state = content(SHAPES, opened)
    rows = bytearray(state["v"])
    for at in range(opened, step):
        rows[at % 3000 * 1024 : at % 3000 * 1024 + 1024] = random.Random(at).randbytes(1024)
    return state | {"v": bytes(rows)}


def main(url: str, arena_path: str, first: int, files: str) -> None:
    store = Store.open(url, bundle_bytes=BUNDLE_BYTES if files == "bundles" else 0)
    with arena_for(Path(arena_path), SHAPES) as arena:
        print("started", flush=True)
        base = ""
        for step in range(first, first + 10_000):
            full = not base or step % FULL_EVERY == 0
            writer = arena.begin(step, 1, released_step=step)
            assert not isinstance(writer, Skip)
            order = Order.of(write(writer, SHAPES, values(step)), "" if full else base)
            slot = arena.find(step)
            assert slot is not None
            parts = [
                save_part(store, slot, order, rank=share, share=share, shares=SHARES)
                for share in range(SHARES)
            ]
            result = finalize(store, parts=parts, **order.words)
            print(f"committed {order.checkpoint} {result.digest}", flush=True)
            publish(store, JOB, order.checkpoint, result.digest)
            base = order.base
            tidy(store, base)


def tidy(store: Store, base: str) -> None:
    """Keep the newest few, as retention would."""
    old = [found.id for found in listing(store, JOB)[KEEP:]]
    if not old:
        return
    try:
        collect.run(store, JOB, old, [], [base], now_s=time.time(), grace_s=-60)
    except LeaseHeldError:  # held by a killed writer: end it, as if it had expired
        store.delete(f"{names.leases(JOB)}/collector.json")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
