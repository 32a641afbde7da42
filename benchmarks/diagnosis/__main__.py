"""`python -m benchmarks.diagnosis --seeds 300`: the table of docs/diagnosis/accuracy.md.

With `--spec FILE.yaml` (benchmarks/diagnosis/live/default.yaml): made-up running jobs, judged while they run.
With `--healthy`: real jobs in which nothing is wrong, and the alarms about them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.diagnosis import healthy
from benchmarks.diagnosis.live.run import report
from benchmarks.diagnosis.live.spec_file import spec_of
from benchmarks.diagnosis.score import table

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seeds", type=int, default=50, help="recordings per plant (default: 50)")
parser.add_argument(
    "--seed-base", "--first", dest="first", type=int, default=0, help="the first seed (default: 0)"
)
parser.add_argument("--spec", type=Path, help="score running jobs, drawn as this file says")
parser.add_argument("--json", action="store_true", help="print JSON on one line")
parser.add_argument("--export", type=Path, help="write inputs and truth there, and judge what is read back")
parser.add_argument("--plain", action="store_true", help="without doubled noise and moved limits")
parser.add_argument(
    "--healthy",
    nargs="*",
    choices=healthy.KINDS,
    metavar="KIND",
    help=f"train healthy jobs and count alarms (default: {', '.join(healthy.KINDS)})",
)
parser.add_argument("--minutes", type=float, default=30.0, help="of each healthy job (default: 30)")
values = parser.parse_args()
if values.healthy is not None:
    watched = healthy.report(values.healthy or healthy.KINDS, values.minutes)
    print(json.dumps(watched, indent=None if values.json else 2))
elif values.spec:
    try:
        found = report(spec_of(values.spec), values.first, values.export, variants=not values.plain)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(json.dumps(found, indent=None if values.json else 2))
else:
    print(table(range(values.first, values.first + values.seeds)))
