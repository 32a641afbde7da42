"""Read columns of Parquet files. pyarrow comes with the extra `parquet` only: it weighs 50 MB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.cli.doctor.readers.columns import check_header, check_rows
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controlplane.cli.doctor.readers.columns import Array, Column

UNPACKED_BYTES_MAX = 4 << 30
"""The most bytes that a whole file may unpack to: a small file may unpack to more than memory holds."""


def parquet_columns(path: Path, wanted: Mapping[str, Column]) -> dict[str, Array]:
    """The wanted columns of a Parquet file. Raises UsageError, also when pyarrow is not installed."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"{path}: Parquet is read by pyarrow, which is not installed: pip install 'holdfast[parquet]', "
            "or give the same columns as CSV"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            _check(path, file.metadata, file.schema_arrow.names, wanted)
            table = file.read(columns=list(wanted))
        return {
            name: column.read(_plain(path, name, table.column(name)), f"{path}, column {name}", 1)
            for name, column in wanted.items()
        }
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read as Parquet, it may be cut off: {reason}") from error


def _check(path: Path, metadata: Any, names: list[str], wanted: Mapping[str, Column]) -> None:
    check_header(path, names, wanted)
    check_rows(path, metadata.num_rows)
    if not metadata.num_rows:
        raise UsageError(f"{path} has columns and no row: record something first")
    groups = range(metadata.num_row_groups)
    unpacked_bytes = sum(metadata.row_group(group).total_byte_size for group in groups)
    if unpacked_bytes > UNPACKED_BYTES_MAX:
        raise UsageError(
            f"{path} unpacks to {unpacked_bytes} bytes, {UNPACKED_BYTES_MAX} at most: give a part"
        )


def _plain(path: Path, name: str, column: Any) -> Array:
    """The values of a column. Raises UsageError for one that holds nulls."""
    if column.null_count:
        row = 1 + next(at for at, valid in enumerate(column.is_valid().to_pylist()) if not valid)
        raise UsageError(f"{path}, column {name}, row {row}: it is null: record every value")
    if str(column.type).startswith("dictionary"):
        column = column.cast(column.type.value_type)
    found: Array = column.to_numpy()
    return found if found.dtype.kind in "iufb" else np.array(found, dtype=object)
