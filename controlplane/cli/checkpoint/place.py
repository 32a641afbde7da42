"""Provide what all verbs need: common flags, opening the storage, finding the job and the checkpoint."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from controlplane.cli.errors import CliError, UsageError, nearest
from controlplane.cli.questions.outputs import add_output
from controlplane.core.records.words import some_of
from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointError, NameRefused
from holdfast.checkpoint.format import names
from holdfast.checkpoint.storage.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from controlplane.cli.flags.parser import Parser
    from holdfast.checkpoint.load import Found


def add_place(parser: Parser) -> None:
    """The flags of every verb: the URL, --job, --mirror, the output."""
    parser.add_argument("url", metavar="URL", help="the storage: a folder or an fsspec URL")
    parser.add_argument("--job", default="", help="the job (not needed when the storage holds only one)")
    parser.add_argument(
        "--mirror",
        default="",
        metavar="URL",
        help="the second storage of the job, for what the first cannot give",
    )
    add_output(parser, json_flag=True)


def add_checkpoint(parser: Parser) -> None:
    """The flags of a verb about one checkpoint."""
    add_place(parser)
    parser.add_argument(
        "--checkpoint",
        default="",
        metavar="ID",
        help="its id, <step>-<generation>, or its step (default: the newest)",
    )


@contextmanager
def opened(values: argparse.Namespace) -> Iterator[Store]:
    """Open the storage that the flags name, and close it afterwards. Its errors become CliError."""
    try:
        store = Store.open(values.url, second=values.mirror)
        try:
            yield store
        finally:
            store.close()
    except CheckpointError as error:
        raise CliError(str(error)) from error


def jobs(store: Store, wanted: str) -> list[str]:
    """Return the named job, or without a name all jobs of the storage. Raises CliError when there is none."""
    known = list(store.folders("jobs"))
    if not known:
        raise CliError(f"storage {store.url}: holds no checkpoints of Holdfast (no folder jobs/ in it)")
    if wanted and wanted not in known:
        raise CliError(
            f"storage {store.url}: has no job {wanted}{nearest(wanted, known)}; it has {some_of(known)}"
        )
    return [wanted] if wanted else known


def one_job(store: Store, wanted: str) -> str:
    """Return the one job. Raises UsageError when there are several and none is named, CliError for none."""
    found = jobs(store, wanted)
    if len(found) > 1:
        raise UsageError(f"storage {store.url}: has {len(found)} jobs, name one with --job: {some_of(found)}")
    return found[0]


def find(store: Store, job: str, wanted: str) -> Found:
    """Return the checkpoint with this id or step; for "" the newest that is not suspect. Raises CliError,
    UsageError."""
    listed = load.listing(store, job)
    if not listed:
        raise CliError(f"storage {store.url}: job {job} has no checkpoint")
    if not wanted:
        trusted = [each for each in listed if not each.suspect]
        if not trusted:
            raise CliError(
                f"job {job}: every checkpoint is suspect; name one to use it all the same. {listed[0].id}: "
                f"{listed[0].suspect}"
            )
        return trusted[0]
    try:
        names.split_id(wanted)
    except NameRefused:
        if not wanted.isdigit():
            raise UsageError(
                f"--checkpoint {wanted!r:.80} is not allowed: give <step>-<generation> or a step"
            ) from None
    for each in listed:
        if wanted in (each.id, str(each.step)):
            return each
    raise CliError(f"job {job} has no checkpoint {wanted}; it has {some_of([each.id for each in listed])}")
