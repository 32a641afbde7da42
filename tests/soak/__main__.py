"""`python -m tests.soak`: kill, watch, compare."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from tests.soak.soak import SoakError, Wish, soak


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    made.add_argument("--kills", type=int, default=20, help="blows in one job")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--seeds", type=int, default=1, help="so many jobs, one seed after the other")
    made.add_argument("--kind", choices=["plain", "sharded"], default="", help="(default: by seed)")
    made.add_argument("--pace-s", type=float, default=0.02, help="what a step takes at least")
    made.add_argument("--json", action="store_true", help="one JSON object per job on standard output")
    return made


def main() -> int:
    """Returns 0 when every promise held, 1 otherwise."""
    args = parser().parse_args()
    bad = 0
    for seed in range(args.seed, args.seed + args.seeds):
        wish = Wish(
            args.kills, seed, args.kind, args.pace_s, lambda text: print(text, file=sys.stderr, flush=True)
        )
        try:
            told = dataclasses.asdict(soak(wish))
        except SoakError as error:
            bad += 1
            print(
                f"FAILED: {error}\n    again: python -m tests.soak --kills {args.kills} --seed {seed}",
                flush=True,
            )
            continue
        print(json.dumps(told) if args.json else f"seed {seed} held: {told}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
