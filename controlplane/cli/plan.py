"""`holdfast plan`: rank the layouts in which a cluster can run a model, with reasons."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from controlplane.cli.errors import OK, CliError, UsageError, nearest
from controlplane.cli.flags.layout import layout_text
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.tables import plain
from controlplane.planner.ranking import Candidate, plan
from controlplane.planner.shapes import ClusterShape, LayoutError, LinkShape, ModelShape

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

S = TypeVar("S")
HEADINGS = ("tp", "pp", "dp", "cp", "micro-batch", "step", "MFU", "memory", "talking", "bubble")


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="FILE", help="the model, in TOML: layers, hidden, heads ..."
    )
    parser.add_argument(
        "--cluster", required=True, metavar="FILE", help="the cluster, in TOML: nodes, devices, links ..."
    )
    parser.add_argument("--most", type=int, default=10, metavar="N", help="layouts to show (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-o", "--output", default="", metavar="FILE", help="write the best, for `holdfast run --layout FILE`"
    )


def run(values: argparse.Namespace) -> int:
    """Print the ranked layouts. Exit code 1 when none fits, 2 when a file has impossible content."""
    if values.most < 1:
        raise UsageError(f"--most {values.most} is too small: give 1 or more")
    model, cluster = read_model(Path(values.model)), read_cluster(Path(values.cluster))
    try:
        found = plan(model, cluster, values.most)
    except LayoutError as error:
        raise CliError(str(error)) from error
    if values.output:
        _write(Path(values.output), layout_text(found[0].layout, f"{model.name} on {cluster.name}"))
    print(_json(found) if values.json else _text(model, cluster, found))
    return OK


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror}") from error


def read_model(path: Path) -> ModelShape:
    """The model that a TOML file describes. Raises UsageError that names file, field and solution."""
    return _record(ModelShape, _read(path), path)


def read_cluster(path: Path) -> ClusterShape:
    """The cluster that a TOML file describes, with its links in the tables `inside` and `between`."""
    fields = _read(path)
    for name in ("inside", "between"):
        if not isinstance(fields.get(name), dict):
            raise UsageError(f"{path}: the table [{name}] is missing: bandwidth_bytes_per_s, latency_s")
        fields[name] = _record(LinkShape, fields[name], path, f"{name}.")
    return _record(ClusterShape, fields, path)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def _record(kind: type[S], fields: dict[str, Any], path: Path, where: str = "") -> S:
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, value in fields.items():
        if name not in known:
            raise UsageError(f"{path}: {where}{name} is unknown{nearest(name, known)}")
        fields[name] = _fitting(known[name].type, value, f"{path}: {where}{name}")
    missing = [n for n, f in known.items() if f.default is dataclasses.MISSING and n not in fields]
    if missing:
        raise UsageError(f"{path}: {where}{missing[0]} is missing")
    try:
        return kind(**fields)
    except LayoutError as error:
        raise UsageError(f"{path}: {error}") from error


def _fitting(wanted: Any, value: Any, what: str) -> Any:
    """The value as the field's type; records pass unchanged. Raises UsageError for another type."""
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "str": (str,),
        "bool": (bool,),
    }
    allowed = kinds.get(str(wanted))
    if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and wanted != "bool")):
        raise UsageError(f"{what} is {value!r}: give {'a number' if wanted != 'str' else 'a text'}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{what} is {value}: give a finite number")
    return float(value) if wanted == "float" else value


def _json(found: Sequence[Candidate]) -> str:
    rows = [
        {
            "tp": each.layout.tp,
            "pp": each.layout.pp,
            "dp": each.layout.dp,
            "cp": each.layout.cp,
            "micro_batch": each.layout.micro_batch,
            "stages": each.layout.stages,
            "step_s": each.cost.step_s,
            "mfu": each.cost.mfu,
            "memory_ratio": each.memory_ratio,
            "communication_ratio": each.communication_ratio,
            "bubble_ratio": each.bubble_ratio,
            "reasons": each.reasons,
        }
        for each in found
    ]
    return json.dumps({"candidates": rows}, indent=2)


def _text(model: ModelShape, cluster: ClusterShape, found: Sequence[Candidate]) -> str:
    rows = [
        (
            *(str(getattr(each.layout, name)) for name in ("tp", "pp", "dp", "cp", "micro_batch")),
            f"{each.cost.step_s:.2f} s",
            f"{each.cost.mfu:.1%}",
            f"{each.memory_ratio:.0%}",
            f"{each.communication_ratio:.0%}",
            f"{each.bubble_ratio:.0%}",
        )
        for each in found
    ]
    size = f"{model.parameters / 1e9:.1f} billion weights"
    head = f"{model.name}: {size} on {cluster.devices} devices of {cluster.name}"
    best = "\n".join(f"  {reason}" for reason in found[0].reasons)
    return f"{head}\n\n{plain(HEADINGS, rows)}\n\nthe first:\n{best}"


COMMANDS = {
    "plan": CommandSpec(
        "Rank the parallel layouts (tensor, pipeline, data, context) of a model on a cluster by the time of "
        "a step, with memory and communication. examples/models and examples/clusters hold files to start "
        "from.",
        run,
        _flags,
    )
}
