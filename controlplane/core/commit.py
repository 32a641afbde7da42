"""Checkpoint policy and the check before a commit: pure functions over records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from controlplane.core.model import CheckpointRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

FULL, INCREMENTAL = "full", "incremental"


class Stage(StrEnum):
    """Where the checkpoint in flight stands."""

    PERSIST = "persist"  # an agent makes its chunks durable
    STORE = "store"  # its record is on its way into etcd
    PUBLISH = "publish"  # the agent makes the manifest visible
    CONFIRM = "confirm"  # `published` is on its way into etcd


@dataclass(frozen=True, slots=True)
class Saving:
    """The one checkpoint of a job that is in flight."""

    id: str
    step: int
    generation: int
    node: str
    member: str
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    stage: Stage = Stage.PERSIST
    record: CheckpointRecord | None = None
    final: bool = False


def due(step: int, begun: int, every: int) -> bool:
    """Whether a snapshot at `step` passes a checkpoint boundary that the last one begun did not."""
    return step // every > begun // every


def base_for(records: Iterable[CheckpointRecord], step: int, full_every: int) -> tuple[str, str]:
    """(kind, base) of a checkpoint at `step`; base "" means that it opens its own, named by its id."""
    good = newest_good(records, FULL)
    rotten = {record.base for record in records if record.bad}
    if good is None or good.id in rotten or step - good.step >= full_every or step <= good.step:
        return FULL, ""
    return INCREMENTAL, good.id


def newest_good(records: Iterable[CheckpointRecord], kind: str = "") -> CheckpointRecord | None:
    """The newest record that is published and not bad (of one kind, if named)."""
    usable = [r for r in records if r.published and not r.bad and kind in ("", r.kind)]
    return max(usable, key=lambda r: (r.step, r.generation), default=None)


def refuse(record: CheckpointRecord, saving: Saving | None, numbers: Iterable[int]) -> str:
    """Why this record must not be committed; "" when it may. `numbers`: generations this leader stored."""
    if saving is None or record.id != saving.id:
        return f"checkpoint {record.id} is not the one in flight ({saving.id if saving else 'none'})"
    if saving.stage is not Stage.PERSIST:
        return f"checkpoint {record.id} was taken already"
    if record.generation not in numbers:
        return f"generation {record.generation} is none that this leader knows to be stored"
    if (record.step, record.generation) != (saving.step, saving.generation):
        return f"it names step {record.step} of generation {record.generation}, not what was ordered"
    if (record.kind, record.base) != (saving.kind, saving.base):
        return f"it is {record.kind} on base {record.base!r}, ordered was {saving.kind} on {saving.base!r}"
    return _coverage(record, saving)


def _coverage(record: CheckpointRecord, saving: Saving) -> str:
    ranks = [rank for rank, _ in saving.versions]
    given = dict(record.versions)
    missing = [str(rank) for rank in ranks if rank not in given]
    if missing:
        return f"its version vector lacks rank {', '.join(missing)}"
    mixed = sorted({step for _, step in record.versions} - {record.step})
    if mixed:
        return f"its version vector mixes steps: {mixed} besides {record.step}"
    if len(given) != len(ranks) or len(record.versions) != len(ranks):
        return "its version vector names ranks that the generation does not have"
    return ""


def as_bad(record: CheckpointRecord, reason: str) -> CheckpointRecord:
    """The same record, never to be used again."""
    return replace(record, bad=reason)
