"""`holdfast checkpoint VERB`: the verbs, each in a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.errors import USAGE
from controlplane.cli.flags.parser import CommandEntry, CommandSpec, Parser

if TYPE_CHECKING:
    import argparse

VERBS = {
    "now": CommandEntry(
        "checkpoint.saving", "save the newest state of a running job now; takes a job, not a URL"
    ),
    "list": CommandEntry("checkpoint.listing", "list the checkpoints on a storage"),
    "show": CommandEntry("checkpoint.showing", "show one checkpoint: its shards, tensors and chunks"),
    "verify": CommandEntry("checkpoint.verifying", "read every chunk and compare it with its digest"),
    "diff": CommandEntry("checkpoint.comparing", "show which tensors differ between two checkpoints"),
    "gc": CommandEntry(
        "checkpoint.collecting", "delete checkpoints that need not be kept; a dry run without --apply"
    ),
    "adopt": CommandEntry(
        "checkpoint.adopting", "tell a coordinator about checkpoints on a storage, after etcd was lost"
    ),
    "export": CommandEntry(
        "checkpoint.exporting", "write one checkpoint as safetensors, or as a folder for torch"
    ),
}
ABOUT = (
    "Work with the checkpoints of a job. URL is the --storage of the job: a folder or any fsspec URL. Only "
    "`now` and `adopt` need a coordinator; the others read the storage."
)


def _flags(parser: Parser) -> None:
    parser.set_defaults(parser=parser)


def no_verb(values: argparse.Namespace) -> int:
    """Print the help, with the verbs."""
    values.parser.print_help()
    return USAGE


COMMANDS = {
    "checkpoint": CommandSpec(
        ABOUT,
        no_verb,
        _flags,
        usage="holdfast checkpoint VERB URL [flags]\n       holdfast checkpoint now JOB [flags]",
        verbs=VERBS,
    )
}
