"""Read the layout of a recorded job: lines of `name: value`, the simplest YAML there is.

Not the TOML of `holdfast plan -o`: this is the file that recorders put beside a timeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from controlplane.cli.doctor.readers.columns import check_file
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

BYTES_MAX = 65_536
FACTORS = ("dp_size", "pp_size", "tp_size", "dsp_size")
SIZES = (*FACTORS, "vpp_size", "world_size")


def read_sizes(path: Path) -> dict[str, int]:
    """The sizes that the file names. Raises UsageError."""
    check_file(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--layout {path}: {error}") from error
    if len(text) > BYTES_MAX:
        raise UsageError(f"--layout {path} is too long for a layout: give lines of `name: value`")
    sizes: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = (part.strip() for part in line.partition("#")[0].partition(":"))
        if not name and not colon:
            continue
        if not colon or not name.replace("_", "").isalnum():
            raise UsageError(f"--layout {path}, line {number}: give `name: value`, like dp_size: 4")
        if name in SIZES:
            sizes[name] = _size(value, f"--layout {path}, line {number}: {name}")
    _check_world(path, sizes)
    return sizes


def _size(value: str, what: str) -> int:
    if not value.isdecimal() or not 1 <= int(value[:12]) <= 1 << 31:
        raise UsageError(f"{what} is {value[:20]!r}: give a whole number of 1 or more")
    return int(value)


def _check_world(path: Path, sizes: dict[str, int]) -> None:
    world = math.prod(sizes.get(name, 1) for name in FACTORS)
    if "world_size" in sizes and sizes["world_size"] != world:
        product = " x ".join(FACTORS)
        raise UsageError(
            f"--layout {path}: world_size is {sizes['world_size']}, {product} is {world}: correct one of them"
        )
