"""`python -m tests.chaos`: disturb a cluster of network namespaces, and check that nothing is lost."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys

from tests.chaos.faults import KINDS
from tests.chaos.hosts import missing
from tests.chaos.rounds import Told, chaos

CANNOT = 3
"""The exit code where namespaces cannot be made."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    made.add_argument("--minutes", type=float, default=5.0, help="how long faults are made; at least one is")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    made.add_argument(
        "--faults", default="*", metavar="PATTERN,...", help=f"only these kinds; known are {', '.join(KINDS)}"
    )
    return made


def main() -> int:
    """Run. Returns 0 when every promise held, 1 when one did not, 2 or 3 when nothing was tried."""
    args = parser().parse_args()
    patterns = args.faults.split(",")
    kinds = [name for name in KINDS if any(fnmatch.fnmatch(name, each) for each in patterns)]
    if not kinds:
        print(f"--faults {args.faults} names none of {', '.join(KINDS)}", file=sys.stderr)
        return 2
    lacks = missing()
    if lacks:
        print(f"nothing was tried: {lacks}", file=sys.stderr)
        return CANNOT
    told = chaos(60 * args.minutes, args.seed, kinds, lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps(told.shown()) if args.json else _words(told), flush=True)
    for problem in told.problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    for folder in told.kept:
        print(f"kept, seed {told.seed}: {folder}; holdfast replay {folder}/c0/journal.jsonl", file=sys.stderr)
    return 1 if told.problems else 0


def _words(told: Told) -> str:
    rows = [f"{times:4}  {name}" for name, times in sorted(told.faults.items())]
    return "\n".join([f"seed {told.seed}: {told.incidents} incidents", *rows])


if __name__ == "__main__":
    raise SystemExit(main())
