"""`holdfast checkpoint adopt`: tell a coordinator which checkpoints a storage holds, after etcd was lost.

A manifest on storage has everything that a record in etcd has, so records can be made anew from it. `adopt`
reads every chunk first; `holdfast run --adopt` reads manifests only, because a restore verifies every byte
anyway and falls back to an older checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.cli.checkpoint.place import add_place, one_job, opened
from controlplane.cli.checkpoint.verifying import verify
from controlplane.cli.client import AdminClient
from controlplane.cli.errors import FAILED, OK, CliError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.queries import add_coordinator
from controlplane.core.records.model import CheckpointRecord
from holdfast.checkpoint import load, suspect
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX
from holdfast.checkpoint.format.manifest import opened as opened_manifest
from holdfast.checkpoint.storage.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controlplane.access.client_credentials import ClientCredentials
    from controlplane.wire import control_pb2 as pb


def _flags(parser: Parser) -> None:
    add_place(parser)
    add_coordinator(parser)


def adopt(values: argparse.Namespace) -> int:
    """Verify every checkpoint, then register the complete ones. Exit code 1 when there is none."""
    with opened(values) as store:
        job = one_job(store, values.job)
        whole, refused = survey(store, job)
    if not whole:
        raise CliError(
            f"job {job} has no complete checkpoint to adopt: {'; '.join(refused) or 'there is none'}"
        )
    reply = asyncio.run(_adopt(values.coordinator, access_of(values), job, whole))
    refused += list(reply.refused)
    shown = {"job": job, "adopted": list(reply.adopted), "refused": refused}
    people = [*(f"adopted {name}" for name in reply.adopted), *(f"refused {why}" for why in refused)]
    print(data(values.output, shown) or "\n".join(people))
    return OK if reply.adopted else FAILED


async def _adopt(
    coordinator: str, access: ClientCredentials, job: str, records: Sequence[CheckpointRecord]
) -> pb.AdoptReply:
    async with AdminClient(coordinator, access=access) as admin:
        return await admin.adopt(job, records)


def survey(store: Store, job: str) -> tuple[list[CheckpointRecord], list[str]]:
    """Return the records of a job's complete checkpoints, and why the others are refused. Reads every
    chunk."""
    whole, refused, suspects = [], [], suspect.reasons(store, job)
    for result in verify(store, job, load.listing(store, job)):
        if result.errors:
            refused.append(f"{result.id}: {result.errors[0]}")
        elif result.id in suspects:
            refused.append(f"{result.id}: {suspects[result.id]}")
        else:
            whole.append(record(store, job, result.id))
    return whole, refused


def on_storage(url: str, mirror: str, job: str) -> tuple[list[CheckpointRecord], list[str]]:
    """The records of a job's checkpoints whose manifests are whole, and why the others have none.

    No chunk is read."""
    known, refused = [], []
    store = Store.open(url, second=mirror)
    try:
        for found in load.listing(store, job):
            if found.suspect:
                refused.append(f"{found.id}: {found.suspect}")
                continue
            try:
                known.append(record(store, job, found.id))
            except (CheckpointCorrupt, CheckpointRefused) as error:
                refused.append(str(error))
    finally:
        store.close()
    return known, refused


def record(store: Store, job: str, checkpoint: str) -> CheckpointRecord:
    """Return the record of a published checkpoint, as etcd keeps it."""
    content = store.read(names.manifest(job, checkpoint), MANIFEST_BYTES_MAX)
    manifest, digest = opened_manifest(content, job, checkpoint)
    words = tuple(sorted(shard.shard for shard in manifest.shards))
    return CheckpointRecord(
        job=job,
        id=checkpoint,
        step=manifest.step,
        generation=manifest.generation,
        kind=manifest.kind,
        base=manifest.base,
        manifest_digest=digest,
        bytes_total=manifest.bytes_total,
        bytes_written=manifest.bytes_stored,
        versions=manifest.versions,
        published=True,
        shards=words,
    )


COMMANDS = {
    "adopt": CommandSpec(
        "Verify every checkpoint of a job on a storage, and make a coordinator know those that are complete. "
        "For a coordinator whose etcd was lost.",
        adopt,
        _flags,
    )
}
