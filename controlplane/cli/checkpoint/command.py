"""`holdfast checkpoint VERB`: finds the verb; the verbs stand in modules of their own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from controlplane.cli.errors import OK, USAGE, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "now": ("saving", "have a running job save its newest state; takes a job, not a URL"),
    "list": ("listing", "the checkpoints on a storage"),
    "show": ("showing", "one checkpoint: its shards, tensors, chunks"),
    "verify": ("verifying", "read every chunk of every checkpoint"),
    "diff": ("comparing", "which tensors differ between two checkpoints"),
    "gc": ("collecting", "delete what is not to be kept; only shows it without --apply"),
    "adopt": ("adopting", "have a coordinator know the checkpoints on a storage, after etcd was lost"),
    "export": ("exporting", "write one as safetensors, or as a folder that torch reads"),
}


def checkpoint(argv: Sequence[str]) -> int:
    """Run one verb. Raises UsageError with the nearest known one."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview())
        return OK if argv else USAGE
    if argv[0] not in VERBS:
        raise UsageError(
            f"unknown verb {argv[0]}{nearest(argv[0], VERBS)} (see `holdfast checkpoint --help`)"
        )
    module = importlib.import_module(f"controlplane.cli.checkpoint.{VERBS[argv[0]][0]}")
    code: int = module.run(argv[1:])
    return code


def overview() -> str:
    """The verbs and what they do."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb.ljust(width)}  {about}" for verb, (_, about) in VERBS.items())
    return (
        "usage: holdfast checkpoint VERB URL [flags]\n       holdfast checkpoint now JOB [flags]\n\n"
        f"{verbs}\n\n"
        "URL is the --storage of a job: a folder or any fsspec URL. "
        "`holdfast checkpoint VERB --help` says more."
    )


COMMANDS = {"checkpoint": checkpoint}
