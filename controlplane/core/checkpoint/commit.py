"""Define the stages of a checkpoint, its base, and the checks before its commit. Pure functions on records.

What an agent reports is compared with what was ordered, since answers repeat and a part may be written by
more than one node: a checkpoint is committed only when every (shard, share) is there exactly once, all of one
step and generation, each from a rank that held the shard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from controlplane.core.records.model import CheckpointRecord
from controlplane.core.state.saving import Saving, Stage, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records.model import CheckpointPart, JobSpec

FULL, INCREMENTAL = "full", "incremental"
RETIRED = "retention lets it go"
"""Value of `bad` for a whole checkpoint that retention removes. Its base is not thought rotten for that."""


FLOWS: dict[str, tuple[Stage, ...]] = {
    "": (Stage.PERSIST, Stage.FINALIZE, Stage.STORE, Stage.PUBLISH, Stage.CONFIRM),
    "both": (Stage.PERSIST, Stage.FINALIZE, Stage.MIRROR, Stage.STORE, Stage.PUBLISH, Stage.CONFIRM),
    "first": (Stage.PERSIST, Stage.FINALIZE, Stage.STORE, Stage.PUBLISH, Stage.CONFIRM, Stage.COPY),
}
"""The stages of a checkpoint in order, by `commit_when` of its job; "": there is no second storage."""

IN_ETCD = (Stage.STORE, Stage.PUBLISH, Stage.CONFIRM)
"""Stages in which etcd may hold a record although its manifest may not be visible."""


def after(stage: Stage, spec: JobSpec) -> Stage | None:
    """Return the stage that follows for a checkpoint of this job; None after the last."""
    flow = FLOWS[spec.commit_when if spec.mirror else ""]
    index = flow.index(stage) + 1
    return flow[index] if index < len(flow) else None


def base_for(records: Iterable[CheckpointRecord], step: int, full_every: int) -> tuple[str, str]:
    """Return (kind, base) for a checkpoint at `step`; base "": it opens its own, named by its id.

    It opens its own when there is no good full one before it, that one's chunks may be damaged, or
    `full_every` steps have passed since."""
    records = tuple(records)
    good = newest_good(records, FULL)
    rotten = rotten_bases(records)
    if good is None or good.id in rotten or step - good.step >= full_every or step <= good.step:
        return FULL, ""
    return INCREMENTAL, good.id


def rotten_bases(records: Iterable[CheckpointRecord]) -> frozenset[str]:
    """Return the bases of bad checkpoints, except retired ones: the chunks of these bases may be damaged."""
    return frozenset(record.base for record in records if record.bad and record.bad != RETIRED)


def newest_good(records: Iterable[CheckpointRecord], kind: str = "") -> CheckpointRecord | None:
    """Return the newest record that is published and not bad, of `kind` if named; None when there is none."""
    usable = [r for r in records if r.published and not r.bad and kind in ("", r.kind)]
    return max(usable, key=lambda r: (r.step, r.generation), default=None)


def lacking(saving: Saving) -> tuple[Writer, ...]:
    """Return the writers whose parts have not arrived."""
    there = {(part.shard, part.share) for part in saving.parts}
    return tuple(writer for writer in saving.writers if (writer.shard, writer.share) not in there)


def refuse_part(part: CheckpointPart, saving: Saving | None, numbers: Iterable[int]) -> str:
    """Return why this part must not be taken for the checkpoint in flight; "" when it may. `numbers`:
    generations that this leader knows to be in etcd."""
    if saving is None or part.checkpoint != saving.id:
        return f"checkpoint {part.checkpoint} is not in flight"
    if part.generation not in numbers:
        return f"generation {part.generation} is none that this leader knows to be stored"
    if (part.step, part.generation) != (saving.step, saving.generation):
        return f"it names step {part.step} of generation {part.generation}, not what was ordered"
    name = _share(part)
    wanted = {(w.shard, w.share): w.shares for w in saving.writers}
    if wanted.get((part.shard, part.share)) != part.shares:
        return f"{name} was not ordered"
    if all((h.shard, h.rank, h.member) != (part.shard, part.rank, part.member) for h in saving.holders):
        return f"{name} comes from {part.member} as rank {part.rank}, which does not hold this shard"
    return ""


def taken(part: CheckpointPart, saving: Saving) -> bool:
    """Whether this share has arrived already: a second part for it changes nothing, whoever wrote it."""
    return any((p.shard, p.share) == (part.shard, part.share) for p in saving.parts)


def _share(part: CheckpointPart) -> str:
    return f"share {part.share} of {part.shares} of shard {part.shard}"


def refuse(record: CheckpointRecord, saving: Saving | None, numbers: Iterable[int]) -> str:
    """Return why this record must not be committed; "" when it may. `numbers`: as in `refuse_part`."""
    if saving is None or record.id != saving.id:
        return f"checkpoint {record.id} is not in flight"
    if saving.stage is not Stage.FINALIZE:
        return f"checkpoint {record.id} is not to be sealed now ({saving.stage})"
    if record.generation not in numbers:
        return f"generation {record.generation} is none that this leader knows to be stored"
    if (record.step, record.generation) != (saving.step, saving.generation):
        return f"it names step {record.step} of generation {record.generation}, not what was ordered"
    if (record.kind, record.base) != (saving.kind, saving.base):
        return f"it is {record.kind} on base {record.base!r}, ordered was {saving.kind} on {saving.base!r}"
    return _impossible(record) or _coverage(record, saving)


def _impossible(record: CheckpointRecord) -> str:
    if min(record.bytes_total, record.bytes_written) < 0:
        return f"it is of {record.bytes_total} bytes, {record.bytes_written} written: that cannot be"
    return ""


def _coverage(record: CheckpointRecord, saving: Saving) -> str:
    absent = [f"share {w.share} of shard {w.shard}" for w in lacking(saving)]
    if absent or len(saving.parts) != len(saving.writers):
        return f"it was sealed without {', '.join(absent) or 'every share exactly once'}"
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
    """Return the record marked as never to be used again."""
    return replace(record, bad=reason)
