"""What `holdfast doctor` says of files and flags that it refuses: file, row, column, cure; exit code 2."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyarrow import parquet

from controlplane.analysis.steps.records import COLUMNS
from controlplane.cli.doctor.readers import columns, iterations_file, layout_file
from tests.analysis.files import LAYOUT, as_parquet, steps, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dp_size: 4\n", "dp_size is 4, the timeline has 3"),
        ("pp_size: 1\n", "pp_size is 1, the timeline has 2"),
        ("vpp_size: 2\n", "vpp_size is 2, the timeline has 1"),
        (LAYOUT.replace("24", "32"), "world_size is 32, dp_size x pp_size x tp_size x dsp_size is 24"),
        ("dp_size: three\n", "line 1: dp_size is 'three': give a whole number"),
        ("\ndp_size: 0\n", "line 2: dp_size is '0'"),
        ("dp_size\n", "line 1: give `name: value`"),
        ("- dp_size: 3\n", "line 1: give `name: value`"),
        ("x" * (layout_file.BYTES_MAX + 2), "too long"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(
    text: str, reason: str, timeline: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "layout.yaml").write_text(text)
    assert reason in refused("--timeline", timeline, "--layout", tmp_path / "layout.yaml")


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("duration", "nan", "column duration, row 8: nan is not allowed: give a finite number from 0"),
        ("duration", "inf", "column duration, row 8: inf"),
        ("duration", "-0.5", "column duration, row 8: -0.5"),
        ("start_ts", "-inf", "column start_ts, row 8: -inf"),
        ("duration", "soon", "column duration, row 8: 'soon' is no number"),
        ("duration", "", "column duration, row 8: '' is no number"),
        ("stage", "1.5", "column stage, row 8: 1.5 is not allowed: give a whole number from 0"),
        ("dp_rank", "-1", "column dp_rank, row 8: -1"),
        ("seq_id", "9" * 30, "column seq_id, row 8: 999"),
        ("optype", "forward-computes", "'forward-computes' is unknown; did you mean forward-compute?"),
        ("stage", "7", "column stage, row 8: stage 2 is missing"),
        ("rank", "77", "column rank, row"),
    ],
)
def test_a_value_that_will_not_do_is_refused_by_row_and_column(
    column: str, value: str, reason: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    rows: list[Sequence[object]] = [*steps()]
    changed = list(rows[7])
    changed[COLUMNS.index(column)] = value
    rows[7] = changed
    path = write(tmp_path / "bad.csv", COLUMNS, rows)
    assert f"{path}, " in (line := refused("--timeline", path)) and reason in line


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"duration": "nan"}, "column duration, row 1: nan"),
        ({"duration": "null"}, "column duration, row 1: it is null"),
        ({"duration": "text"}, "column duration, row 1: 'x' is no number"),
        ({"stage": "bool"}, "column stage, row 1: 'True' is no number"),
        ({"optype": "number"}, "column optype, row 1: '3' is unknown"),
        ({"stage": "list"}, "column stage, row 1: '[0]' is no number"),
    ],
)
def test_a_value_of_a_parquet_file_that_will_not_do(
    values: dict[str, str], reason: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    rows = steps()
    wrong = {"nan": float("nan"), "null": None, "text": "x", "bool": True, "number": 3, "list": [0]}
    changed = {name: [wrong[kind]] * len(rows) for name, kind in values.items()}
    path = as_parquet(tmp_path / "bad.parquet", rows, **changed)
    assert f"{path}, " in (line := refused("--timeline", path)) and reason in line


def test_columns_that_are_missing_or_there_twice(
    timeline: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    text = timeline.read_text()
    timeline.write_text(text.replace("seq_id", "sequence", 1))
    assert ", seq_id is missing" in refused("--timeline", timeline)
    timeline.write_text(text.replace("gmc", "mc", 1))
    assert ", mc is there twice" in refused("--timeline", timeline)
    rows = steps()
    values = dict(zip(COLUMNS[:-1], map(list, zip(*(row[:-1] for row in rows), strict=True)), strict=True))
    parquet.write_table(pyarrow.table(values), tmp_path / "short.parquet")
    assert ", gmc is missing" in refused("--timeline", tmp_path / "short.parquet")


def test_rows_that_contradict_each_other(refused: Callable[..., str], tmp_path: Path) -> None:
    rows = steps()
    other = (*rows[4][:6], rows[4][6] + 1.0, *rows[4][7:])
    path = write(tmp_path / "twice.csv", COLUMNS, [*rows, other])
    line = refused("--timeline", path)
    assert f"row {len(rows) + 1}: " in line and "recorded twice, with other times" in line


def test_files_that_are_cut_off(timeline: Path, refused: Callable[..., str], tmp_path: Path) -> None:
    whole_rows = timeline.read_text().splitlines()
    timeline.write_text("\n".join([*whole_rows[:40], whole_rows[40].rsplit(",", 4)[0]]))
    assert "row 40: 7 values for 11 columns: the row is cut off" in refused("--timeline", timeline)
    whole = as_parquet(tmp_path / "cut.parquet", steps()).read_bytes()
    for size in (4, 50, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.parquet").write_bytes(whole[:size])
        assert "may be cut off" in refused("--timeline", tmp_path / "cut.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "is no Parquet file" in refused("--timeline", tmp_path / "cut.parquet")


def test_files_without_rows(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    assert "is empty" in refused("--timeline", path)
    assert "is empty" in refused("--iterations", path)
    write(path, COLUMNS, [])
    assert "has a header and no row" in refused("--timeline", path)
    schema = {name: pyarrow.array([], pyarrow.int64()) for name in COLUMNS}
    parquet.write_table(pyarrow.table(schema), tmp_path / "empty.parquet")
    assert "has columns and no row" in refused("--timeline", tmp_path / "empty.parquet")


def test_what_is_no_file(refused: Callable[..., str], tmp_path: Path) -> None:
    for option in ("--timeline", "--iterations"):
        assert "is a folder: give the file in it" in refused(option, tmp_path)
        assert "No such file" in refused(option, tmp_path / "none.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is no regular file" in refused("--timeline", tmp_path / "pipe.csv")


def test_files_that_are_no_tables(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "bytes.csv"
    path.write_bytes(Random(1).randbytes(4096))
    assert "no CSV in UTF-8" in refused("--timeline", path)
    path.write_text("dp_rank," + "x" * 200_000)
    assert "no CSV in UTF-8" in refused("--iterations", path)


def test_files_that_are_too_large(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.write(b"dp_rank\n")
        file.truncate(columns.FILE_BYTES_MAX + 1)  # a hole: it takes no room
    assert f"{columns.FILE_BYTES_MAX} at most" in refused("--timeline", path)
    rows = columns.ROWS_MAX + 1
    flat = {name: pyarrow.nulls(rows, pyarrow.int8()) for name in COLUMNS}
    parquet.write_table(pyarrow.table(flat), tmp_path / "many.parquet")
    assert f"more than {columns.ROWS_MAX} rows" in refused("--timeline", tmp_path / "many.parquet")


@pytest.mark.parametrize(
    ("header", "row", "reason"),
    [
        ("worker,time,seconds", "0,5,nan", "column seconds, row 3: nan"),
        ("worker,time,seconds", "0,5,-1", "column seconds, row 3: -1"),
        ("worker,time,seconds", "0,5,0", "column seconds, row 3: 0 is not allowed"),
        ("worker,time,seconds", "0,inf,1", "column time, row 3: inf"),
        ("worker,time,seconds", "0,noon,1", "column time, row 3: 'noon' is no number"),
        ("worker,time,seconds", ",5,1", "column worker, row 3: it is empty"),
        ("worker,time,seconds", "0,5", "row 3: 2 values for 3 columns"),
        ("worker,when,seconds", "0,5,1", ", time is missing"),
        ("worker,time,took", "0,5,1", "has neither of the columns seconds, batch_time_norm: name one"),
    ],
)
def test_iterations_that_will_not_do(
    header: str, row: str, reason: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"{header}\n0,1,1\n1,1,1\n{row}\n")
    assert reason in refused("--iterations", path)


def test_two_columns_of_durations_or_one_that_is_not_there(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    path = write(tmp_path / "both.csv", ("worker", "time", *iterations_file.DURATIONS), [(0, 1, 1, 1)])
    assert "has both of the columns" in refused("--iterations", path)
    assert ", second is missing; did you mean seconds?" in refused(
        "--iterations", path, "--column", "second"
    )  # fmt: skip


def test_flags_that_do_not_fit(timeline: Path, times: Path, refused: Callable[..., str]) -> None:
    assert "job j and --timeline given" in refused("j", "--timeline", timeline)
    assert "--mute is for a finding of a running job" in refused("--mute", "slow_rank:rank 1")
    assert "--timeline and --iterations given" in refused("--timeline", timeline, "--iterations", times)
    assert "--layout is for --timeline" in refused("--iterations", times, "--layout", "x")
    assert "--column is for --iterations" in refused("--timeline", timeline, "--column", "x")


def test_records_that_are_no_pipeline_are_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    rows = [row for row in steps() if row[4] != "forward-send"]
    path = write(tmp_path / "half.csv", COLUMNS, rows)
    assert f"{path}: forward-recv 0 of stage 1 has no send" in refused("--timeline", path)
