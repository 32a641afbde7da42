"""Make samples of the formats on storage and in shared memory."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.golden.commit import Sample, module, taken_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = ("large", "float32", (20_000,))
LARGE_CONTENT = bytes(range(200)) * 400
SHAPES = [("w", "float32", (200,)), ("b", "bfloat16", (16,)), ("step", "int64", ())]
STATE = {"epoch": 3, "rate": 0.125, "raw": b"\x00\xff", "pair": (1, "two")}
PARTS = 2
SLOT_FIELDS = ("index", "step", "generation", "header_bytes", "data_bytes", "pins", "sequence")


def checkpoints(folder: Path) -> Iterator[Sample]:
    """Save the checkpoints of two jobs. The first job has a full and an incremental one, each of two parts;
    the parts of one that was never sealed; and one that was sealed, not published. The second job has a full
    and an incremental one with compressed chunks, which they share. The third job has such two in bundles."""
    plain = Saved(folder, "job", SHAPES, "none")
    yield plain.save(10, "published")
    yield plain.save(20, "published")
    yield plain.save(30, "parts")
    yield plain.save(40, "pending")
    packed = Saved(folder, "packed", [LARGE, *SHAPES], "zstd")
    yield packed.save(10, "published")
    yield packed.save(20, "published")
    bundled = Saved(folder, "bundled", SHAPES, "none", bundle_bytes=1 << 20)
    yield bundled.save(10, "published")
    yield bundled.save(20, "published")


class Saved:
    """Saves one job's states, the first one whole."""

    def __init__(
        self, folder: Path, job: str, shapes: list[Any], codec: str, *, bundle_bytes: int = 0
    ) -> None:
        self._store = module("store").Store.open(f"file://{folder}", bundle_bytes=bundle_bytes)
        self._job, self._shapes, self._codec, self._base = job, shapes, codec, ""

    def save(self, step: int, until: str) -> Sample:
        """Save one checkpoint up to this stage, and return what it was made of."""
        states, values = module("states"), contents(step, self._shapes)
        with (
            tempfile.TemporaryDirectory() as place,
            states.arena_for(Path(place) / "arena", self._shapes) as file,
        ):
            writer = file.begin(step, 1, released_step=step)
            slot = states.write(writer, self._shapes, values, STATE)
            order = states.Order.of(slot, self._base, self._job)
            parts = [
                states.save_part(
                    self._store, slot, order, rank=each, share=each, shares=PARTS, codec=self._codec
                )
                for each in range(PARTS)
            ]
        digest = ""
        if until != "parts":
            saving = module("saving")
            finalize = (
                saving.finalize if hasattr(saving, "finalize") else saving.seal
            )  # as it was called before
            digest = finalize(self._store, parts=parts, **order.words).digest
        if until == "published":
            module("saving").publish(self._store, self._job, order.checkpoint, digest)
        self._base = self._base or order.checkpoint
        told = {
            "job": self._job,
            "id": order.checkpoint,
            "step": step,
            "kind": order.kind,
            "base": order.base,
        }
        told |= {"until": until, "codec": self._codec, "digest": digest, "shapes": self._shapes}
        told |= {"versions": order.versions, "parts": [taken_apart(part) for part in parts]}
        return told | {
            "values": {name: taken_apart(data) for name, data in values.items() if name != LARGE[0]}
        }


def contents(step: int, shapes: list[Any]) -> dict[str, bytes]:
    """The tensors at this step: a later state differs from an earlier one in the bias and the step."""
    values = {"w": random.Random(1).randbytes(800), "b": random.Random(step).randbytes(32)}
    values |= {"step": step.to_bytes(8, "little")}
    return values | ({LARGE[0]: LARGE_CONTENT} if LARGE in shapes else {})


def arena(folder: Path) -> Sample:
    """The first bytes of an arena's file, and a slot's header."""
    states = module("states")
    path = folder / "arena"
    with module("arena").Arena.create(path, 65536) as file:
        writer = file.begin(10, 3, released_step=10)
        slot = states.write(writer, SHAPES, contents(10, SHAPES), STATE, "tp0")
        told = {name: getattr(slot, name) for name in SLOT_FIELDS}
        header, size = slot.header, path.stat().st_size
        offsets = {each["name"]: each["offset"] for each in json.loads(header)["tensors"]}
    return {
        "file_bytes": size,
        "slot_bytes": 65536,
        "shard": "tp0",
        "offsets": offsets,
        "slot": told,
        "words": taken_apart(path.read_bytes()[:192]),
        "header": taken_apart(header),
    }
