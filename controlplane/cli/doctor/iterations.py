"""Show the diagnosis of iteration times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.analysis.iterations import diagnosis
from controlplane.cli.doctor.shown import as_data, as_text
from controlplane.cli.questions.tables import NOTHING, plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.analysis.iterations.pace import Iterations

HEADINGS = ("WORKER", "STATE", "RATIO", "ONSET", "RECOVERY")
ROWS_SHOWN = 40
"""The most workers that are shown to people; programs get all."""


def diagnose(_: Path, workers: Sequence[Iterations]) -> diagnosis.IterationsDiagnosis:
    """The diagnosis. It cannot fail: every file that could be read can be judged."""
    return diagnosis.diagnose(workers)


def data(found: diagnosis.IterationsDiagnosis) -> dict[str, Any]:
    """For programs."""
    return {
        "workers": [
            {
                "worker": each.worker,
                "state": each.state.value,
                "ratio": each.ratio,
                "onset": each.onset,
                "recovery": each.recovery,
            }
            for each in found.workers
        ],
        "rows_repeated": found.rows_repeated,
        "findings": [as_data(each) for each in found.findings],
    }


def text(found: diagnosis.IterationsDiagnosis) -> str:
    """For people: the slowest workers first."""
    workers = sorted(found.workers, key=lambda each: -(each.ratio or 0.0))
    rows = [
        (
            str(each.worker),
            each.state.value,
            *(NOTHING if value is None else form.format(value)
              for value, form in ((each.ratio, "{:.2f}"), (each.onset, "{:g}"), (each.recovery, "{:g}"))),
        )
        for each in workers[:ROWS_SHOWN]
    ]  # fmt: skip
    table = plain(HEADINGS, rows)
    if len(workers) > ROWS_SHOWN:
        table += f"\nand {len(workers) - ROWS_SHOWN} more: see --json"
    if len(workers) == 1:
        table += "\nthere is one worker only: nobody to compare it with"
    if found.rows_repeated:
        table += f"\nrows that were there twice, and count once: {found.rows_repeated}"
    return f"{table}\n\n{as_text(found.findings)}"
