"""Define how a job's ranks share the model: by flags, or by a file that `holdfast plan -o` wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import UsageError, nearest
from controlplane.cli.flags.parser import whole
from controlplane.core.placement import replicas
from controlplane.core.placement.formation import impossible
from controlplane.core.records.model import JobSpec

if TYPE_CHECKING:
    import argparse

    from controlplane.cli.flags.parser import Parser
    from controlplane.planner.shapes import Layout

SIZES = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel"}
PLANNED = (*SIZES, "dp", "micro_batch", "stages")
"""The keys that a layout file may have. A job takes the sizes alone; dp follows from its nodes."""


def add_layout_flags(parser: Parser) -> None:
    """Add the flags for the sizes of one replica of the model, in ranks or in nodes."""
    ours = parser.add_argument_group("parallel layout of the model")
    about = {
        "tensor": "ranks that share each layer, all on one node",
        "pipeline": "ranks in a row that each hold a stage of layers",
        "context": "ranks that share each sequence",
    }
    for name, words in about.items():
        ours.add_argument(
            f"--{name}-parallel",
            type=whole(1, "a size"),
            default=None,
            metavar="N",
            help=f"{words} (default: 1)",
        )
    ours.add_argument(
        "--layout",
        default="",
        metavar="FILE",
        help="read these sizes from a file that `holdfast plan -o` wrote",
    )
    ours.add_argument(
        "--replica-nodes",
        type=whole(1, "a replica of the model needs at least one node"),
        default=None,
        metavar="N",
        help="nodes that hold one replica of the model; the job shrinks and grows by this number (default: "
        "from the layout)",
    )


def layout_fields(values: argparse.Namespace) -> dict[str, Any]:
    """The fields of a JobSpec from these flags. Raises UsageError."""
    sizes = {field: getattr(values, field) for field in SIZES.values()}
    if values.layout:
        for field, size in sizes.items():
            if size is not None:
                flag = "--" + field.replace("_", "-")
                raise UsageError(f"--layout {values.layout} and {flag} {size} set the same size: drop one")
        sizes = _read(Path(values.layout))
    fields: dict[str, Any] = {field: size or 1 for field, size in sizes.items()}
    per = JobSpec("", (), "", nproc_per_node=values.nproc_per_node, **fields)
    return {**fields, "replica_nodes": values.replica_nodes or replicas.nodes_of(per)}


def check_layout(spec: JobSpec) -> None:
    """Raise UsageError when no cluster could run this job, with the flag or the divisor that is wrong."""
    wrong = impossible(spec)
    if wrong:
        raise UsageError(wrong)


def _read(path: Path) -> dict[str, int | None]:
    try:
        table = tomllib.loads(path.read_text()).get("layout")
    except OSError as error:
        raise UsageError(f"--layout {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--layout {path} is not valid TOML: {error}") from error
    if not isinstance(table, dict):
        raise UsageError(f"--layout {path}: the table [layout] is missing: write one with `holdfast plan -o`")
    for name in table:
        if name not in PLANNED:
            raise UsageError(f"--layout {path}: {name} is unknown{nearest(name, PLANNED)}")
    for name in SIZES:
        size = table.get(name, 1)
        if type(size) is not int or size < 1:
            raise UsageError(f"--layout {path}: {name} is {size!r}: give a whole number of 1 or more")
    return {field: table.get(name) for name, field in SIZES.items()}


def layout_text(layout: Layout, about: str) -> str:
    """The content of a file for `--layout`."""
    rows = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "dp": layout.dp}
    rows["micro_batch"] = layout.micro_batch
    lines = [f"{name} = {value}" for name, value in rows.items()]
    return "\n".join([f"# {about}", "[layout]", *lines, f"stages = {list(layout.stages)}", ""])
