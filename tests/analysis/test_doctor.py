"""`holdfast doctor` as a stranger meets it: what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyarrow import parquet

from benchmarks.diagnosis.fleets import fleet
from benchmarks.diagnosis.pipelines import Faults, record
from controlplane.analysis.steps.records import COLUMNS
from tests.analysis.files import JOB, LAYOUT, as_parquet, steps, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_timeline_as_json(timeline: Path, said: Callable[..., str]) -> None:
    found = json.loads(said("--timeline", timeline, "--json"))
    assert found["slowdown"] > 1.3 and (found["steps"], found["steps_left_out"]) == (4, 0)
    assert found["worker_share"] == pytest.approx(1.0, abs=0.2) and abs(found["stage_share"]) < 0.2
    (finding,) = found["findings"]
    assert finding["subject"] == {"dp_rank": 1, "stage": 0, "rank": 1}
    assert (finding["kind"], finding["severity"]) == ("slow_worker", "critical")
    assert 0.5 < finding["confidence"] < 1.0 and finding["evidence"]["compute_ratio"] > 1.8
    assert finding["reason"] and finding["recommendation"]


def test_a_timeline_for_people(timeline: Path, said: Callable[..., str]) -> None:
    shown = said("--timeline", timeline)
    assert "4 steps: a step takes" in shown and "slowdown 1." in shown
    assert "critical: slow_worker, dp_rank 1, stage 0 (rank 1), confidence" in shown
    assert "  why: " in shown and "  do:  " in shown


def test_parquet_and_csv_say_the_same(timeline: Path, said: Callable[..., str], tmp_path: Path) -> None:
    same = as_parquet(tmp_path / "steps.parquet", steps())
    assert said("--timeline", same, "--json") == said("--timeline", timeline, "--json")
    renamed = same.rename(tmp_path / "steps.dat")
    assert said("--timeline", renamed, "--json") == said("--timeline", timeline, "--json")


def test_small_types_and_dictionaries_of_parquet_are_read(said: Callable[..., str], tmp_path: Path) -> None:
    rows = steps()
    table = pyarrow.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))
    kinds = {"dp_rank": pyarrow.int8(), "rank": pyarrow.int16(), "start_ts": pyarrow.float32()}
    for name, kind in kinds.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(name).cast(kind))
    table = table.set_column(4, "optype", table.column("optype").dictionary_encode())
    parquet.write_table(table, tmp_path / "small.parquet")
    assert len(json.loads(said("--timeline", tmp_path / "small.parquet", "--json"))["findings"]) == 1


def test_iterations_as_json(times: Path, said: Callable[..., str]) -> None:
    truth = fleet("emerging", 3)
    found = json.loads(said("--iterations", times, "--json"))
    assert len(found["workers"]) == len({each[0] for each in truth.samples})
    slow = [each for each in found["workers"] if each["state"] == "straggler"]
    assert [each["worker"] for each in slow] == list(truth.slow)
    assert slow[0]["onset"] == pytest.approx(truth.slow[slow[0]["worker"]].onset, abs=3 * truth.interval)
    assert slow[0]["recovery"] is None and slow[0]["ratio"] > 1.2
    assert [each["subject"] for each in found["findings"]] == [{"worker": slow[0]["worker"]}]


def test_iterations_for_people(times: Path, said: Callable[..., str]) -> None:
    shown = said("--iterations", times)
    assert shown.startswith("WORKER") and "straggler" in shown.splitlines()[1]
    assert "straggler, worker" in shown and "  do:  " in shown


def test_workers_may_have_names_and_another_column(said: Callable[..., str], tmp_path: Path) -> None:
    rows = [
        (f"host-{worker}", at, 1.0 + (worker == 2 and at > 20)) for worker in range(4) for at in range(60)
    ]
    path = write(tmp_path / "named.csv", ("worker", "time", "forward_s"), rows)
    found = json.loads(said("--iterations", path, "--column", "forward_s", "--json"))
    assert [each["subject"] for each in found["findings"]] == [{"worker": "host-2"}]


def test_one_worker_is_not_judged(said: Callable[..., str], tmp_path: Path) -> None:
    path = write(tmp_path / "one.csv", ("worker", "time", "seconds"), [(0, at, 1.0) for at in range(40)])
    assert "nobody to compare it with" in said("--iterations", path)
    assert json.loads(said("--iterations", path, "--json"))["workers"][0]["ratio"] is None


def test_a_layout_that_fits_changes_nothing(timeline: Path, said: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "layout.yaml").write_text(LAYOUT)
    without = said("--timeline", timeline, "--json")
    assert said("--timeline", timeline, "--layout", tmp_path / "layout.yaml", "--json") == without


def test_rows_in_any_order_and_rows_that_repeat_say_the_same(
    timeline: Path, said: Callable[..., str], tmp_path: Path
) -> None:
    rows = steps()
    mixed = write(tmp_path / "mixed.csv", COLUMNS, Random(1).sample(rows, len(rows)))
    assert said("--timeline", mixed, "--json") == said("--timeline", timeline, "--json")
    twice = json.loads(said("--timeline", write(mixed, COLUMNS, [*rows, *rows]), "--json"))
    assert twice.pop("rows_repeated") == len(rows)
    once = json.loads(said("--timeline", timeline, "--json"))
    assert once.pop("rows_repeated") == 0 and once == twice


def test_one_step_of_one_worker_is_diagnosed(said: Callable[..., str], tmp_path: Path) -> None:
    job = replace(JOB, replicas=1, stages=1, steps=1, micro_batches=1)
    path = write(tmp_path / "one.csv", COLUMNS, record(job, Faults(), Random(1)))
    found = json.loads(said("--timeline", path, "--json"))
    assert (found["steps"], found["findings"]) == (1, [])
    assert found["slowdown"] == pytest.approx(1.0)


@pytest.mark.process
def test_without_pyarrow_the_extra_is_named_and_csv_is_read(timeline: Path, tmp_path: Path) -> None:
    packed = as_parquet(tmp_path / "steps.parquet", steps())
    code = (
        "import sys; sys.modules['pyarrow'] = None; from controlplane.cli.main import main; "
        "sys.exit(main(['doctor', '--timeline', sys.argv[1]]))"
    )
    done = [
        subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        for path in (packed, timeline)
    ]
    assert [each.returncode for each in done] == [2, 0]
    assert "pip install 'holdfast[parquet]'" in done[0].stderr and "slow_worker" in done[1].stdout
