"""A process that saves and publishes one checkpoint after the other until it is killed.

`python -m tests.checkpoint.writer URL ARENA FIRST_STEP`"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.checkpoint.store import Store
from tests.checkpoint.states import Shapes, arena_for, save, snapshot

SHAPES: Shapes = [("w", "float32", (1 << 19,)), ("v", "uint8", (9 << 20,)), ("b", "float32", (16,))]
FULL_EVERY = 4


def main(url: str, arena_path: str, first: int) -> None:
    store = Store.open(url)
    with arena_for(Path(arena_path), SHAPES) as arena:
        print("started", flush=True)
        base = ""
        for step in range(first, first + 10_000):
            full = not base or step % FULL_EVERY == 0
            slot = snapshot(arena, step, SHAPES, seed=step)
            save(store, slot, base="" if full else base)
            base = f"{step}-1" if full else base


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
