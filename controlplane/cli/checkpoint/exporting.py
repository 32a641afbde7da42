"""`holdfast checkpoint export`: one safetensors file, or a folder that torch.distributed.checkpoint loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.cli.checkpoint.place import add_checkpoint, find, one_job, opened
from controlplane.cli.checkpoint.progress import shown_bar
from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.questions.outputs import data
from controlplane.reporting.quantities import size
from holdfast.checkpoint import export, load

if TYPE_CHECKING:
    import argparse

    from holdfast.checkpoint.storage.store import Store


def _flags(parser: Parser) -> None:
    add_checkpoint(parser)
    parser.add_argument("--to", required=True, metavar="PATH", help="the new file or folder")
    parser.add_argument(
        "--format",
        type=one_of(*_WRITERS),
        default="safetensors",
        metavar="|".join(_WRITERS),
        help="safetensors: one file; dcp: a folder for torch's dcp.load (default: safetensors)",
    )


def export_(values: argparse.Namespace) -> int:
    """Write one checkpoint, every byte verified, to a file or folder that does not exist yet."""
    target = Path(values.to)
    with opened(values) as store:
        job = one_job(store, values.job)
        chosen = find(store, job, values.checkpoint).id
        written = _WRITERS[values.format](store, values.url, job, chosen, target)
    shown = {"job": job, "checkpoint": chosen, "path": str(target), "bytes": written, "format": values.format}
    people = f"checkpoint {chosen} of job {job} is at {target}, {size(written)}"
    print(data(values.output, shown) or people)
    return OK


def _safetensors(store: Store, url: str, job: str, checkpoint: str, target: Path) -> int:
    total = load.read_manifest(store, job, checkpoint).bytes_stored
    with shown_bar("exporting", total) as bar:
        return export.safetensors(store, job, checkpoint, target, progress=bar.advance)


def _dcp(store: Store, url: str, job: str, checkpoint: str, target: Path) -> int:
    try:
        from holdfast.dcp.export import folder
    except ImportError as error:
        raise CliError(f"--format dcp needs torch here: {error} (pip install torch)") from error
    folder(url, job, checkpoint, target)
    return sum(path.stat().st_size for path in target.iterdir())


_WRITERS = {"safetensors": _safetensors, "dcp": _dcp}
COMMANDS = {
    "export": CommandSpec(
        "Write one checkpoint in a format that other programs read. Every byte is verified.", export_, _flags
    )
}
