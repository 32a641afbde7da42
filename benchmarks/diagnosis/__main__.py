"""`python -m benchmarks.diagnosis --seeds 300`: the table of docs/diagnosis.md."""

from __future__ import annotations

import argparse

from benchmarks.diagnosis.score import table

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seeds", type=int, default=50, help="recordings per plant (default: 50)")
parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
values = parser.parse_args()
print(table(range(values.first, values.first + values.seeds)))
