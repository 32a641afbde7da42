"""Kill scripts of training frameworks under Holdfast, and compare with undisturbed runs of them.

    python -m tests.frameworks [--only hf] [--case NAME]
    python -m tests.frameworks --script FILE --kill-at STEP

Prints one JSON line for each case. The exit code is 1 when a case is not exact. A case whose framework is not
installed counts as skipped, never as passed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.frameworks.case import PACKAGES, Case, by_hand
from tests.frameworks.cases import CASES
from tests.frameworks.log_cases import LOG_CASES, TRAINER_LOG_CASES, LogCase, TrainerLogCase
from tests.frameworks.running import Undisturbed, run, run_logger

LOGGERS = "loggers"
AnyCase = Case | LogCase | TrainerLogCase


def chosen(args: argparse.Namespace) -> list[AnyCase]:
    """The cases that are asked for."""
    if args.script is not None:
        return [by_hand(args.script.resolve(), args.kill_at, args.only or "")]
    every: tuple[AnyCase, ...] = (*CASES, *LOG_CASES, *TRAINER_LOG_CASES)
    cases = [case for case in every if args.only in (None, group(case))]
    cases = [case for case in cases if not args.case or case.name in args.case]
    if unknown := sorted(set(args.case) - {case.name for case in cases}):
        sys.exit(f"no case {', '.join(unknown)}: there are {', '.join(case.name for case in every)}")
    return cases


def group(case: AnyCase) -> str:
    """What --only calls it."""
    return case.framework if isinstance(case, Case) else LOGGERS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[*sorted(PACKAGES), LOGGERS], help="cases of this framework")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="this case; repeatable")
    parser.add_argument("--script", type=Path, help="a ported script, killed in the forward of one step")
    parser.add_argument("--kill-at", type=int, default=5, metavar="STEP", help="of --script; 5 if not given")
    failed, skipped, undisturbed = [], [], Undisturbed()
    for case in chosen(parser.parse_args()):
        row = run(case, undisturbed) if isinstance(case, Case) else run_logger(case)
        print(row.as_json(), flush=True)
        if row.skipped:
            skipped.append(row.workload)
        elif not row.exact:
            failed.append(row.workload)
    if skipped:
        print(f"skipped: {', '.join(skipped)}", file=sys.stderr)
    if failed:
        sys.exit(f"not exact: {', '.join(failed)}")


if __name__ == "__main__":
    main()
